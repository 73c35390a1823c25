"""``matrix``: every combination, and the same answer as from everywhere else."""

import json
import re
from functools import partial
from html.parser import HTMLParser

import pytest
from support.declared import accelerator, precision, registry_of, strategy

from core import Trainer
from core.cli import matrix_cells
from core.cli.matrix_cells import matrix
from core.declarations import KINDS, Exclude, Need
from core.errors import InvalidCombination, PluginUnavailable
from core.registry import get_registry
from core.rules import violations


def cells(cli, *arguments):
    answer = cli("matrix", "--format", "json", *arguments)
    assert answer.code == 0
    return json.loads(answer.out)


def test_every_combination_has_a_state(cli):
    """The matrix holds each accelerator x precision x strategy once, with reasons where it is not valid."""
    found = cells(cli)
    names = {(cell["accelerator"], cell["precision"], cell["strategy"]) for cell in found}
    registry = get_registry()
    counts = [len(registry.sound(kind)) for kind in ("accelerator", "precision", "strategy")]
    assert len(names) == len(found) == counts[0] * counts[1] * counts[2]
    for cell in found:
        assert bool(cell["reasons"]) == (cell["state"] != "valid")


@pytest.fixture
def strangers(site):
    """Two packages' plugins beside the built-ins: one that works with some, one that clashes, one that is not there."""
    site.plugin("acme-chip", "accelerator", "chip", provides=("collective.gloo", "autocast.bfloat16"), count=2)
    site.plugin("acme-chip2", "accelerator", "later", count=0, reason="the driver is not loaded")
    clash = Exclude("steps.global", "it rounds each rank's weights on its own")
    site.plugin("acme-fp4", "precision", "fp4", excludes=(clash,))
    gloo = Need("collective.gloo", "its ranks meet over gloo")
    site.plugin("acme-ring", "strategy", "ring", provides=("devices.many",), needs=(gloo,), ranks="device")
    site.plugin("acme-ring2", "strategy", "ddp")


def test_same_answer_as_the_trainer(cli, strangers):
    """Each cell says what the Trainer says to its combination: a plan, or a refusal for the same reasons."""
    found = cells(cli)
    assert {cell["state"] for cell in found if "chip" in cell.values()} == {"valid", "refused"}
    assert {cell["state"] for cell in found if cell["accelerator"] == "later"} == {"unavailable", "refused"}
    assert {"interlock:ddp", "acme-ring2:ddp"} <= {cell["strategy"] for cell in found}
    for cell in found:
        names = {kind: cell[kind] for kind in KINDS}
        # two devices, so that strategies for many are asked for what they are for, unless one is all that they can here
        declaration = get_registry().find("strategy", cell["strategy"]).declaration
        alone = any("devices.one" in need.alternatives for need in declaration.needs)
        many = "devices.many" in declaration.provided and not alone
        make = partial(Trainer, **names, devices=2 if many else 1, logger=False)
        if cell["state"] == "valid":
            assert make().plan.world_size, cell
        else:
            kind = InvalidCombination if cell["state"] == "refused" else PluginUnavailable
            with pytest.raises(kind) as caught:
                make()
            assert all(reason.partition(": ")[2] in str(caught.value) for reason in cell["reasons"])


def test_names_narrow_the_matrix(cli):
    """With names given only their combinations are shown."""
    found = cells(cli, "--accelerator", "cpu", "--precision", "bf16", "--strategy", "single")
    assert [(c["accelerator"], c["precision"], c["strategy"]) for c in found] == [
        ("cpu", "bf16-mixed", "single_device")
    ]


def shop():
    return registry_of(
        accelerator("cpu", provides=("device.cpu",)),
        accelerator("npu", "none", provides=("autocast.float16",)),
        precision("full"),
        precision("half", needs=(Need("autocast.float16", "it is <fast> & </script>"),)),
        strategy("alone"),
        strategy(
            "pipe",
            needs=(Need("module.sequential", "stages are cut between layers"), Need("session.script", "it restarts")),
            excludes=(Exclude("device.cpu", "it is for accelerators"),),
        ),
    )


def test_states_and_conditions():
    """Refused, unavailable and valid are told apart, and what only a run can meet is a condition, not a refusal."""
    found = {cell.combination: cell for cell in matrix(shop(), {})}
    assert found["cpu", "full", "alone"].state == "valid"
    assert found["npu", "half", "alone"].state == "unavailable"
    assert found["npu", "half", "alone"].reasons == ("accelerator 'npu': no driver found",)
    both = found["cpu", "half", "pipe"]
    assert both.state == "refused"
    assert len(both.reasons) == 2
    assert found["npu", "full", "pipe"].conditions == (
        "strategy 'pipe' needs module.sequential: stages are cut between layers",
        "strategy 'pipe' needs session.script: it restarts",
    )


@pytest.fixture
def shown(monkeypatch, cli):
    monkeypatch.setattr("core.cli.matrix_command.load_registry", shop)
    return lambda *arguments: cli("matrix", *arguments).out


def test_table(shown):
    """The table has one line per combination, with the state and the reasons last."""
    head, *rows = shown().splitlines()
    assert head.split() == ["ACCELERATOR", "PRECISION", "STRATEGY", "STATE"]
    assert len(rows) == 8
    assert rows[0].split() == ["cpu", "full", "alone", "valid"]
    assert "refused: strategy 'pipe' excludes device.cpu, which accelerator 'cpu' brings" in rows[1]


def test_markdown(shown):
    """Markdown has a table per accelerator, and each reason once below with its number."""
    text = shown("--format", "markdown")
    assert "### cpu\n\n| strategy | full | half |\n| --- | --- | --- |\n| alone | ✓ | ✕ [1] |" in text
    assert text.count("no driver found") == 1
    assert re.search(r"^\d\. accelerator 'npu': no driver found$", text, re.MULTILINE)


class Page(HTMLParser):
    """Collects what matters of a page, and fails on a tag that is closed out of order."""

    VOID = frozenset({"meta", "input", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open, self.cells, self.addresses, self.data = [], [], [], ""

    def handle_starttag(self, tag, attributes):
        fields = dict(attributes)
        self.addresses += [fields[name] for name in ("src", "href") if name in fields]
        if "cell" in fields.get("class", "").split():
            self.cells.append(fields)
        if tag not in self.VOID:
            self.open.append((tag, fields))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][1].get("id") == "data":
            self.data += data


def test_html_is_one_page_that_needs_nothing(shown):
    """The page is well formed, asks no other place for anything, and is plain ASCII."""
    text = shown("--format", "html")
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.addresses == []
    assert "http" not in text
    assert "prefers-color-scheme: dark" in text
    assert text.isascii()


def test_html_holds_every_reason(shown):
    """Each cell of the page leads to the reasons of its combination, whatever letters are in them."""
    page = Page()
    page.feed(shown("--format", "html"))
    texts = json.loads(page.data)["texts"]
    assert len(page.cells) == 8
    by_label = {cell["aria-label"].rpartition(":")[0]: cell for cell in page.cells}
    refused = by_label["cpu, half, alone"]
    (reason,) = [texts[int(number)] for number in refused["data-r"].split()]
    assert reason.endswith("it is <fast> & </script>")
    assert "refused" in refused["class"]


def test_a_large_matrix_judges_each_combination_once(monkeypatch):
    """20 accelerators x 20 precisions x 50 strategies: each is judged once, and again where a run could mend it."""
    met, unmet = Need("collective.gloo | collective.nccl", "x"), Need("session.script | launched.torchrun", "x")
    judged = []
    monkeypatch.setattr(matrix_cells, "violations", lambda *given: judged.append(given) or violations(*given))
    for asked, times in ((met,), 1), ((met, unmet), 2):
        registry = registry_of(
            *(accelerator(f"a{i}", provides=("collective.gloo", "rpc", "grad_scaler")) for i in range(20)),
            *(precision(f"p{i}", needs=(Need("grad_scaler", "x"),) if i % 2 else ()) for i in range(20)),
            *(strategy(f"s{i}", needs=asked, excludes=(Exclude("amp.apex", "x"),)) for i in range(50)),
        )
        judged.clear()
        assert sum(cell.state == "valid" for cell in matrix_cells.matrix(registry, {})) == 20_000
        assert len(judged) == times * 20_000

"""``matrix``: every combination, and the same answer as from everywhere else."""

import json
import re
import time
from html.parser import HTMLParser

import pytest
from support.declared import accelerator, precision, registry_of, strategy

from core.cli.matrix_cells import matrix
from core.declarations import Exclude, Need
from core.errors import InvalidCombination, PluginUnavailable
from core.registry import get_registry
from core.request import Request
from core.spellings import Devices


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


def test_same_answer_as_resolving(cli):
    """Each cell says what asking for its combination says: it resolves, or is refused for the same reasons."""
    for cell in cells(cli):
        names = [cell["accelerator"], cell["precision"], cell["strategy"]]
        # two devices, so that strategies for many are asked for what they are for, unless one is all that they can here
        declaration = get_registry().find("strategy", names[2]).declaration
        alone = any("devices.one" in need.alternatives for need in declaration.needs)
        many = "devices.many" in declaration.provided and not alone
        request = Request(*names, devices=Devices(count=2 if many else 1))
        if cell["state"] == "valid":
            assert get_registry().resolve(request), cell
        else:
            kind = InvalidCombination if cell["state"] == "refused" else PluginUnavailable
            with pytest.raises(kind) as caught:
                get_registry().resolve(request)
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


def test_large_matrix_is_fast():
    """20 accelerators x 20 precisions x 50 strategies are judged in well under a second or two on a busy machine."""
    needs = (Need("collective.gloo | collective.nccl", "x"), Need("session.script | launched.torchrun", "x"))
    registry = registry_of(
        *(accelerator(f"a{i}", provides=("collective.gloo", "rpc", "grad_scaler")) for i in range(20)),
        *(precision(f"p{i}", needs=(Need("grad_scaler", "x"),) if i % 2 else ()) for i in range(20)),
        *(strategy(f"s{i}", needs=needs, excludes=(Exclude("amp.apex", "x"),)) for i in range(50)),
    )
    start = time.perf_counter()
    assert sum(cell.state == "valid" for cell in matrix(registry, {})) == 20_000
    assert time.perf_counter() - start < 2.0  # 0.2 on a quiet machine

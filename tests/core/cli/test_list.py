"""``list``: what is installed, what works with it, and what is wrong with it."""

import json
import os
import subprocess
import sys

import pytest
from support.fake_dists import write_metadata, write_plugin

from core.declarations import Exclude, Need, Package

KEYS = [
    "kind",
    "name",
    "aliases",
    "summary",
    "distribution",
    "version",
    "status",
    "reason",
    "provides",
    "needs",
    "excludes",
    "works_with",
]


def objects(cli, *arguments):
    answer = cli("list", "--json", *arguments)
    assert answer.code == 0
    return {entry["name"]: entry for entry in json.loads(answer.out)}


def line(cli, name, *arguments):
    return next(row for row in cli("list", *arguments).out.splitlines() if f" {name} " in row)


def test_json_has_exactly_these_keys(cli):
    """Each object of the JSON has the same keys, in the same order."""
    for entry in objects(cli).values():
        assert list(entry) == KEYS


def test_json_of_one_plugin(cli, site):
    """The JSON of a plugin holds all that it declares, with the reasons."""
    site.plugin(
        "acme-tools",
        "strategy",
        "ring",
        version="2.1",
        aliases=("circle",),
        provides=("clip.norm",),
        needs=(Need("device.cpu", "it is slow"),),
        excludes=(Exclude("weights.half", "it is exact"),),
    )
    ring = objects(cli)["ring"]
    assert ring["aliases"] == ["circle"]
    assert (ring["distribution"], ring["version"], ring["status"]) == ("acme-tools", "2.1", "ready")
    assert ring["needs"] == [{"token": "device.cpu", "reason": "it is slow"}]
    assert ring["excludes"] == [{"token": "weights.half", "reason": "it is exact"}]
    assert set(ring["works_with"]) == {"accelerator", "precision"}
    assert ring["works_with"]["accelerator"] == ["cpu"]
    assert "16-true" not in ring["works_with"]["precision"]
    assert "16-mixed" in ring["works_with"]["precision"]


def test_table_is_aligned(cli, site):
    """The table has its columns under their headings and the reason last."""
    site.plugin("acme", "strategy", "ring", packages=(Package("no-such-thing"),))
    head, *rows = cli("list").out.splitlines()
    for heading in ("NAME", "ALIASES", "FROM", "WORKS WITH", "STATUS"):
        column = head.index(heading)
        assert all(row[column - 1] == " " and row[column] != " " for row in rows)
    assert line(cli, "ring").endswith(
        "unavailable: package 'no-such-thing' is not installed; pip install no-such-thing"
    )


def test_works_with_in_short(cli, site):
    """The table names the accelerators a plugin works with, or says all of them, or counts where there are many."""
    site.plugin("acme", "strategy", "ring", needs=(Need("device.cpu", "x"),))
    site.plugin("bolt", "strategy", "knot", needs=(Need("acme:nothing", "x"),))
    site.plugin("cord", "strategy", "line")
    assert "cord 1.0         all  " in line(cli, "line")
    assert "acme 1.0         cpu  " in line(cli, "ring")
    assert "bolt 1.0         -  " in line(cli, "knot")
    for number in range(6):
        site.plugin(f"n{number}", "accelerator", f"n{number}", provides=("device.cpu",))
    assert "7/8 accelerators" in line(cli, "ring").replace("7/9", "7/8")


def test_narrowed_by_kind(cli):
    """With a kind only plugins of that kind are shown."""
    assert {entry["kind"] for entry in objects(cli, "--kind", "precision").values()} == {"precision"}


def test_narrowed_to_what_works_with_the_given(cli, site):
    """With a name given, by any spelling, only plugins that work with it are shown, and the given one itself."""
    site.plugin("acme", "accelerator", "npu", provides=("device.cpu", "autocast.bfloat16"), aliases=("chip",))
    narrowed = objects(cli, "--accelerator", "CHIP")
    assert {"npu", "32-true", "bf16-mixed", "single_device"} <= set(narrowed)
    assert not {"cpu", "cuda", "16-mixed", "64-true", "ddp"} & set(narrowed)
    assert not objects(cli, "--accelerator", "chip", "--precision", "16-mixed")


def test_broken_plugin_is_listed(cli, site):
    """A broken plugin is listed with its distribution, its phase and its reason; list ends with 0, --strict with 1."""
    site.plugin("acme", "strategy", "ring", source="raise ImportError('no libring')")
    ring = objects(cli)["ring"]
    assert (ring["status"], ring["distribution"], ring["version"]) == ("broken", "acme", "1.0")
    assert ring["reason"] == "import: ImportError: no libring"
    assert ring["works_with"] == {"accelerator": [], "precision": []}
    assert "broken: import: ImportError: no libring" in line(cli, "ring")
    assert cli("list", "--strict").code == 1
    assert cli("list", "--strict", "--kind", "precision").code == 0


def test_plugin_that_exits_does_not_end_the_list(site):
    """A plugin that calls sys.exit(0) when it is imported cannot make the program end early and green."""
    site.plugin("acme", "strategy", "ring", source="import sys; sys.exit(0)")
    done = site.run("-m", "core.registry", "list", "--strict")
    assert done.returncode == 1
    assert "broken: import: SystemExit: 0" in done.stdout


def test_plugin_that_prints_does_not_spoil_the_json(site):
    """What a plugin prints while it is imported goes to standard error."""
    site.plugin("acme", "strategy", "ring", before="print('hello from ring')")
    done = site.run("-m", "core.registry", "list", "--json")
    assert "ring" in {entry["name"] for entry in json.loads(done.stdout)}
    assert "hello from ring" in done.stderr


def test_conflict_is_listed_on_both_sides(cli, site):
    """Two plugins of one name are both shown in conflict, each with what chooses it."""
    site.plugin("acme", "strategy", "ring")
    site.plugin("bolt", "strategy", "ring", version="3.0")
    rows = [entry for entry in json.loads(cli("list", "--json").out) if entry["name"] == "ring"]
    assert [entry["status"] for entry in rows] == ["conflict", "conflict"]
    assert rows[0]["reason"] == "bolt 3.0 claims this name too; choose it as 'acme:ring'"
    assert rows[0]["works_with"]["accelerator"]
    assert cli("list", "--strict").code == 1


def test_lost_alias_is_told(cli, site):
    """A plugin whose alias is another one's name is ready, and its reason says that the alias does not choose it."""
    site.plugin("acme", "strategy", "ring", aliases=("ddp",))
    ring = objects(cli)["ring"]
    assert ring["status"] == "ready"
    assert ring["reason"] == "alias 'ddp' does not choose it, since 'ddp' of interlock claims it"
    assert objects(cli)["ddp"]["status"] == "ready"
    assert cli("list", "--strict").code == 0


def test_double_metadata_is_noted(cli, site):
    """Two records of one distribution give one plugin and a note beside the list."""
    site.plugin("acme", "strategy", "ring", version="1.0")
    site.plugin("acme", "strategy", "ring", version="2.0")
    answer = cli("list", "--json")
    assert [entry["version"] for entry in json.loads(answer.out) if entry["name"] == "ring"] == ["2.0"]
    assert answer.err.startswith("note: acme is recorded twice: 2.0 in ")


@pytest.mark.parametrize("variable", [{"INTERLOCK_PLUGINS": "builtin"}, {"INTERLOCK_BLOCK": "ring"}])
def test_plugin_that_is_turned_off_is_not_imported(site, tmp_path, variable):
    """A plugin that leaves a mark when it is imported leaves none when it is turned off."""
    mark = tmp_path / "mark"
    site.plugin("acme", "strategy", "ring", before=f"open({str(mark)!r}, 'w').close()")
    assert "ring" not in site.run("-m", "core.registry", "list", env=variable).stdout
    assert not mark.exists()
    assert "ring" in site.run("-m", "core.registry", "list").stdout
    assert mark.exists()


HEAVY = ("torch", "numpy", "rich", "pluggy", "importlib.metadata", "difflib", "core.resolve", "core.trainer")


def test_list_loads_nothing_heavy_with_many_distributions(tmp_path):
    """With 300 distributions, 60 of them with plugins, list names them all and loads nothing that takes its time."""
    for number in range(240):
        write_metadata(tmp_path, f"plain-{number}", "1.0", {"console_scripts": {"x": "x:main"}})
    for number in range(10):
        write_plugin(tmp_path, f"acc-{number}", "accelerator", f"acc{number}")
        write_plugin(tmp_path, f"prec-{number}", "precision", f"prec{number}")
    for number in range(40):
        need = Need("collective.gloo", "it exchanges")
        write_plugin(tmp_path, f"strat-{number}", "strategy", f"strat{number}", needs=(need,))
    code = f"import sys, core.cli\ncore.cli.main(['list'])\nprint('heavy', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=tmp_path)
    *rows, last = done.stdout.splitlines()
    assert len(rows) > 60, done.stderr
    assert last == "heavy []"

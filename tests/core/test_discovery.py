"""Every entry point becomes a plugin or a reason, whatever its package does."""

import json

import pytest

from core.declarations import API
from core.discovery import scan, scan_with_notes
from core.errors import InvalidArgument, PluginBroken
from core.metadata import installed_version
from core.registry import get_registry


def failures(registry):
    return {item.name: item.failure for item in registry.found if item.failure}


def test_sound_plugin_is_found(site):
    """A plugin of a third party comes with its distribution, its version and its declaration."""
    site.plugin("acme-ring", "strategy", "ring", version="2.1")
    found = site.registry().find("strategy", "ring")
    assert (found.distribution, found.version, found.builtin) == ("acme-ring", "2.1", False)
    assert found.declaration.name == "ring"
    assert found.failure is None


def test_own_plugins_enter_by_the_same_door():
    """Our own plugins are found through entry points of our own distribution, all of them sound."""
    own = [item for item in scan() if item.builtin]
    assert own
    assert not [item for item in own if item.failure]


BROKEN = [
    ("raise ImportError('libring.so: cannot open')", "import", "ImportError: libring.so: cannot open"),
    ("import no_such_module_anywhere", "import", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
    ("def broken(:\n", "import", "SyntaxError: invalid syntax"),
    ("raise SystemExit", "import", "SystemExit"),
    ("import sys; sys.exit(0)", "import", "SystemExit: 0"),
    ("class Fatal(BaseException): pass\nraise Fatal('panic')", "import", "Fatal: panic"),
    ("raise RecursionError", "import", "RecursionError"),
    ("OTHER = 1", "import", "AttributeError: module 'acme' has no attribute 'DECLARATION'"),
    ("DECLARATION = 'ring'", "declare", "acme:DECLARATION holds a str; a StrategyDeclaration belongs there"),
    ("from core.declarations import StrategyDeclaration as DECLARATION", "declare", "acme:DECLARATION holds a type"),
]


@pytest.mark.parametrize(("source", "phase", "reason"), BROKEN)
def test_broken_module_is_one_broken_plugin(site, source, phase, reason):
    """Whatever a module does when it is imported is kept with its phase; the other plugins are there."""
    site.plugin("acme", "strategy", "ring", source=source)
    site.plugin("fine", "strategy", "fine")
    registry = site.registry()
    failure = failures(registry)["ring"]
    assert failure.phase == phase
    assert failure.reason.startswith(reason)
    assert registry.find("strategy", "fine")


@pytest.mark.parametrize(("source", "phase", "reason"), BROKEN[:4])
def test_broken_plugin_raises_when_it_is_asked_for(site, source, phase, reason):
    """Asking for a broken plugin names its distribution, version and phase, with what it raised as the cause."""
    site.plugin("acme", "strategy", "ring", source=source)
    with pytest.raises(PluginBroken, match=r"strategy 'ring' from acme 1\.0 is broken") as caught:
        site.registry().find("strategy", "ring")
    assert caught.value.phase == phase
    assert reason in str(caught.value)
    assert type(caught.value.__cause__).__name__ == reason.partition(":")[0]


def test_keyboard_interrupt_passes(site):
    """Ctrl-C while a plugin is imported ends the program, as it should."""
    site.plugin("acme", "strategy", "ring", source="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        site.registry()


def test_unknown_token_is_a_fault_of_the_declaration(site):
    """A declaration that refuses itself during the import is called so, with every problem in one line."""
    site.plugin("acme", "strategy", "ring", provides=("clip.nrom", "zzz"))
    failure = failures(site.registry())["ring"]
    assert failure.phase == "declare"
    assert "'clip.nrom'; did you mean 'clip.norm'?; unknown token 'zzz'" in failure.reason
    assert "\n" not in failure.reason


def test_declaration_of_another_kind(site):
    """A precision under the strategies' group is refused with both kinds."""
    site.plugin("acme", "precision", "fine")
    site.metadata("acme", "1.0", {"interlock.accelerators": {"ring": "acme:DECLARATION"}})
    failure = failures(site.registry())["ring"]
    assert failure.reason == "acme:DECLARATION holds a PrecisionDeclaration; an AcceleratorDeclaration belongs there"


@pytest.mark.parametrize(
    ("api", "age", "fix"), [(API + 1, "newer", "upgrade interlock"), (API - 1, "older", "upgrade acme")]
)
def test_plugin_for_another_api(site, api, age, fix):
    """A plugin for a newer or older API is refused by its number, and told who must be upgraded."""
    site.plugin("acme", "strategy", "ring", api=str(api), provides=("not.yet.known",))
    failure = failures(site.registry())["ring"]
    assert failure.phase == "api"
    assert f"{age} API {api}, this is API {API}; {fix}" in failure.reason


@pytest.mark.parametrize("value", ["acme", "acme:", ":D", "acme:a:b", "acme DECLARATION", "acme/x:D"])
def test_value_that_cannot_be_parsed(site, value):
    """An entry point that does not say module and attribute is told the form it should have."""
    site.plugin("acme", "strategy", "ring", value=value)
    failure = failures(site.registry())["ring"]
    assert failure.phase == "parse"
    assert "must have the form 'module:attribute'" in failure.reason


@pytest.mark.parametrize("value", ["acme:DECLARATION [fast]", "acme : DECLARATION", "acme:Box.inner"])
def test_value_in_an_allowed_form(site, value):
    """Extras, spaces and dotted attributes are allowed in an entry point."""
    site.plugin("acme", "strategy", "ring", value=value)
    with (site.folder / "acme.py").open("a") as module:
        module.write("class Box:\n    inner = DECLARATION\n")
    assert site.registry().find("strategy", "ring").failure is None


EXTRAS = """Metadata-Version: 2.1
Name: acme
Version: 1.0
Provides-Extra: gpu
Requires-Dist: pluggy>=1.0
Requires-Dist: no-such-driver>=2,<3; extra == 'gpu'
Requires-Dist: pluggy>=900; extra == "gpu"
Requires-Dist: no-such-plotter; extra == 'plots'
Requires-Dist: not a requirement; extra
"""


def test_what_an_extra_requires_is_looked_for(site, cli):
    """A plugin whose entry point names an extra is unavailable where that is not installed, with the command for it."""
    site.plugin("acme", "strategy", "ring", value="acme:DECLARATION [gpu]")
    points = {"interlock.strategies": {"ring": "acme:DECLARATION [gpu]"}}
    site.metadata("acme", "1.0", points, metadata=EXTRAS)
    (row,) = (row for row in json.loads(cli("list", "--json").out) if row["name"] == "ring")
    assert row["status"] == "unavailable"
    assert row["reason"].split("; ") == [
        "package 'no-such-driver' is not installed",
        'pip install "acme[gpu]"',
        f"package 'pluggy' {installed_version('pluggy')} is installed, >=900 is needed",
        'pip install "acme[gpu]"',
    ]
    site.metadata("acme", "1.0", {"interlock.strategies": {"ring": "acme:DECLARATION"}}, metadata=EXTRAS)
    (row,) = (row for row in json.loads(cli("list", "--json").out) if row["name"] == "ring")
    assert row["status"] == "ready"


def test_entry_point_named_otherwise_than_its_declaration(site):
    """An entry point and its declaration must agree on the name, dashes and case aside."""
    site.plugin("acme", "strategy", "ring", entry_point="circle")
    failure = failures(site.registry())["circle"]
    assert failure.reason == "its entry point is called 'circle', its declaration 'ring'"
    site.plugin("other", "strategy", "my_ring", entry_point="My-Ring")
    assert site.registry().find("strategy", "my-ring")


def test_two_entry_points_of_one_name_in_one_distribution(site):
    """A distribution that gives one name to two entry points has both refused."""
    site.plugin("acme", "strategy", "ring")
    site.metadata("acme", "1.0", {"interlock.strategies": {"ring": "acme:DECLARATION", "RING": "acme:Other"}})
    assert all("several entry points" in f.reason for f in failures(site.registry()).values())


def test_plugins_variable_leaves_out_third_parties(site, monkeypatch):
    """INTERLOCK_PLUGINS=builtin imports no third-party plugin."""
    site.plugin("acme", "strategy", "ring", before="raise SystemExit('imported')")
    monkeypatch.setenv("INTERLOCK_PLUGINS", "builtin")
    registry = site.registry()
    assert all(item.builtin for item in registry.found)
    assert [item.name for item in registry.turned_off] == ["ring"]


def test_plugins_variable_with_another_value(site, monkeypatch):
    """A misspelt INTERLOCK_PLUGINS is an error, not a silent 'all'."""
    monkeypatch.setenv("INTERLOCK_PLUGINS", "bultin")
    with pytest.raises(InvalidArgument, match="INTERLOCK_PLUGINS='bultin' must be 'builtin' or 'all'"):
        site.registry()


@pytest.mark.parametrize("word", ["ring", "RING", "acme-tools", "Acme_Tools", "acme-tools:ring", "other, ring ,"])
def test_block_variable_leaves_out_single_plugins(site, monkeypatch, word):
    """INTERLOCK_BLOCK leaves out a name, a distribution, or one name of one distribution, without importing it."""
    site.plugin("acme-tools", "strategy", "ring", before="raise SystemExit('imported')")
    site.plugin("fine", "strategy", "fine")
    monkeypatch.setenv("INTERLOCK_BLOCK", word)
    registry = site.registry()
    assert [item.name for item in registry.turned_off] == ["ring"]
    assert registry.find("strategy", "fine")


def test_block_variable_that_names_nothing(site, monkeypatch):
    """A name in INTERLOCK_BLOCK that nothing has is noted, since it is probably misspelt."""
    monkeypatch.setenv("INTERLOCK_BLOCK", "rnig")
    (note,) = site.registry().notes
    assert note == "INTERLOCK_BLOCK names 'rnig', and no installed plugin or distribution is called so"


def test_one_scan_per_process(site, monkeypatch):
    """However often the registry is asked for, the installed packages are read once."""
    calls = []
    read = "core.discovery.read_points"
    monkeypatch.setattr(read, lambda groups: calls.append(groups) or ([], []))
    assert get_registry() is get_registry()
    assert len(calls) == 1


def test_implementation_is_not_imported(site):
    """Finding a plugin reads its declaration and leaves its implementation alone."""
    site.plugin("acme", "strategy", "ring", implementation="acme_impl:Ring")
    (site.folder / "acme_impl.py").write_text("raise SystemExit('imported')")
    assert site.registry().find("strategy", "ring").failure is None


def test_our_own_distribution_is_missing(monkeypatch):
    """Where our packages are on the path but not installed, a note says why no built-in plugin is there."""
    monkeypatch.setattr("core.discovery.read_points", lambda groups: ([], []))
    (note,) = scan_with_notes().notes
    assert note.startswith("interlock itself is not installed")

"""Declarations that misbehave when they are read, looked at or shown harm nobody but themselves."""

import json

import pytest

HEAD = """
from core.declarations import *
from core.declarations import API, AcceleratorDeclaration, Availability, Option, StrategyDeclaration
GOOD = dict(name="ring", summary="s", implementation="acme:Ring", api=API)
class Mute(Exception):
    def __str__(self): raise SystemExit(0)
class Shy:
    def __repr__(self): raise RuntimeError("no")
"""
BROKEN = {
    "error without text": ("raise Mute", "import: Mute: its text cannot be had"),
    "colours in an error": ("raise ImportError('\\x1b[31mred')", "import: ImportError: \\x1b[31mred"),
    "attribute that raises": (
        "class D(StrategyDeclaration):\n"
        "    asked = 0\n"
        "    def __getattribute__(self, name):\n"
        "        if name == 'needs':\n"
        "            D.asked += 1\n"
        "            if D.asked > 3: raise SystemExit(0)\n"
        "        return super().__getattribute__(name)\n"
        "DECLARATION = D(**GOOD)",
        "declare: SystemExit: 0",
    ),
    "checks left out": (
        "class D(StrategyDeclaration):\n"
        "    def __post_init__(self): pass\n"
        "DECLARATION = D(**GOOD, provides=5, aliases=None)",
        "declare: aliases must be a tuple of str, not None; provides must be a tuple of str, not 5",
    ),
    "never initialised": ("DECLARATION = object.__new__(StrategyDeclaration)", "declare: AttributeError"),
    "changed afterwards": (
        "DECLARATION = StrategyDeclaration(**GOOD)\nobject.__setattr__(DECLARATION, 'needs', 5)",
        "declare: needs must be a tuple of Need, not 5",
    ),
    "lies about its class": (
        "class D:\n    @property\n    def __class__(self): return StrategyDeclaration\nDECLARATION = D()",
        "declare: acme:DECLARATION holds a D",
    ),
    "endless API": ("DECLARATION = StrategyDeclaration(**{**GOOD, 'api': 10**5000})", "api: written for the newer API"),
    "repr that raises": (
        "DECLARATION = StrategyDeclaration(**GOOD, provides=Shy())",
        "declare: provides must be a tuple of str, not <Shy, whose repr raises RuntimeError>",
    ),
    "control characters": (
        "DECLARATION = StrategyDeclaration(**{**GOOD, 'needs': (Need('rpc', 'why\\x1b[2J'),)})",
        "declare: needs holds a character that cannot be printed",
    ),
    "numbers for texts": (
        "DECLARATION = StrategyDeclaration(**GOOD, packages=(Package('torch', '', 3),), replaces=(Replaces(3, 4),))",
        "declare: packages must be a tuple of Package",
    ),
    "nameless package": (
        "DECLARATION = StrategyDeclaration(**GOOD, packages=(Package(' '),))",
        "a package has no name",
    ),
    "option that is no keyword": (
        "DECLARATION = StrategyDeclaration(**GOOD, options=(Option('a b', 1, 'm'),))",
        "option 'a b' must be the name of a keyword",
    ),
    "option twice": (
        "DECLARATION = StrategyDeclaration(**GOOD, options=(Option('a', 1, 'm'), Option('a', 2, 'm')))",
        "option 'a' is declared twice",
    ),
}
HEAD += "from core.declarations import Need, Package, Replaces\n"


def rows(cli, *arguments):
    answer = cli("list", "--json", *arguments)
    assert answer.code == 0, answer.err
    return {(row["name"], row["distribution"]): row for row in json.loads(answer.out)}


@pytest.mark.parametrize("case", BROKEN)
def test_a_hostile_declaration_is_one_broken_plugin(cli, site, case):
    """It is listed with its reason, every command ends as ever, and the plugin beside it is ready."""
    source, reason = BROKEN[case]
    site.plugin("acme", "strategy", "ring", source=HEAD + source)
    site.plugin("fine", "strategy", "fine")
    listed = rows(cli)
    assert listed["fine", "fine"]["status"] == "ready"
    assert listed["ring", "acme"]["status"] == "broken"
    assert reason in listed["ring", "acme"]["reason"]
    assert cli("explain", "--strategy", "single_device", "--accelerator", "cpu").code == 0
    assert "\x1b" not in cli("list").out


def test_a_subclass_is_read_once(cli, site):
    """A declaration of a subclass is taken for what its fields say at first; what is more in it does not matter."""
    source = "class D(StrategyDeclaration):\n    colour = 'red'\nDECLARATION = D(**GOOD, provides=('clip.norm',))"
    site.plugin("acme", "strategy", "ring", source=HEAD + source)
    assert rows(cli)["ring", "acme"]["provides"] == ["clip.norm"]
    assert type(site.registry().find("strategy", "ring").declaration).__name__ == "StrategyDeclaration"


PROBES = {
    "raise Mute": "its probe failed: Mute: its text cannot be had",
    "raise GeneratorExit": "its probe failed: GeneratorExit",
    "return Shy()": "its probe is broken: it returned <Shy, whose repr raises RuntimeError>",
    "return Availability(0, 5)": "its probe is broken: it returned Availability(count=0, reason=5)",
    "return Availability(10**6000)": "its probe is broken: it returned <Availability, whose repr raises ValueError>",
    "return Availability(0, 'no\\x1b[31m')": "no\\x1b[31m",
}


@pytest.mark.parametrize("body", PROBES)
def test_a_hostile_probe_is_one_unavailable_accelerator(cli, site, body):
    """Whatever a probe does or returns is the reason why its accelerator is not there."""
    accelerator = "DECLARATION = AcceleratorDeclaration(**GOOD, probe='acme:probe', provides=('device.cpu',))"
    site.plugin("acme", "accelerator", "ring", source=f"{HEAD}\ndef probe():\n    {body}\n{accelerator}")
    row = rows(cli)["ring", "acme"]
    assert row["status"] == "unavailable"
    assert row["reason"].startswith(PROBES[body])


NAMES = ["\x1b[31m", "\u202eevil", "x" * 5000, "a b", "--json", "../..", "\u0130", "<script>"]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_an_odd_entry_point_is_one_broken_plugin(cli, site, name):
    """A name that no declaration can have is shown so that it steers no terminal and widens no column."""
    site.plugin("acme", "strategy", "ring", entry_point=name)
    table = cli("list")
    assert table.code == 0
    assert "\x1b" not in table.out
    assert "\u202e" not in table.out
    assert max(len(line) for line in table.out.splitlines() if " acme " not in line) < 400
    (row,) = (row for row in rows(cli).values() if row["distribution"] == "acme")
    assert row["status"] == "broken"
    assert "its declaration 'ring'" in row["reason"]

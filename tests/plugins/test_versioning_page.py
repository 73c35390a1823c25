"""docs/versioning.md says what the code does: its snippets run, and its messages are the real ones."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from core.cli import main
from core.declarations import API, Declaration, StrategyDeclaration
from core.errors import OtherAPI, PluginBroken
from core.registry import get_registry

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "versioning.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MESSAGES = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
STRATEGY = "from core.plugins import Strategy\nclass Implementation(Strategy): pass"


def test_the_number_is_the_code_s():
    """The page names the number that the code has."""
    assert f"It is **{API}** now" in PAGE


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_declare_for_this_number(snippet):
    """Each declaration on the page can be made, and is accepted by this Interlock."""
    names: dict[str, object] = {}
    exec(snippet, names)
    declaration = names["DECLARATION"]
    assert isinstance(declaration, Declaration)
    assert declaration.api == API


@pytest.mark.parametrize(("api", "message"), [(API - 1, MESSAGES[0]), (API + 1, MESSAGES[1])])
def test_a_plugin_of_another_number_is_told_apart(site, capsys, api, message):
    """Asking for it gives the message of the page; list says the same, and everything else works."""
    site.plugin("some-strategy", "strategy", "some_strategy", STRATEGY, api=str(api))
    site.ready()
    with pytest.raises(PluginBroken) as raised:
        get_registry().find("strategy", "some_strategy")
    assert str(raised.value).startswith(message)
    assert main(["list", "--kind", "strategy"]) == 0
    out = capsys.readouterr().out
    assert "broken: api: written for the" in out
    assert re.search(r"^strategy +single_device .*ready", out, re.MULTILINE)


def reason_of(site, before="", **fields):
    """Return how a plugin with such a declaration is told to be broken."""
    site.plugin("some-strategy", "strategy", "some_strategy", STRATEGY, before=before, **fields)
    site.ready()
    with pytest.raises(PluginBroken) as raised:
        get_registry().find("strategy", "some_strategy")
    return str(raised.value)


def test_a_declaration_that_cannot_be_made_names_its_api(site):
    """A field that this Interlock does not know is named, after the number that the declaration was written for."""
    assert reason_of(site, api=str(API + 1), colour="red").startswith(MESSAGES[2])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"colour": "red"}, "has the field 'colour', which is unknown here; it was written for a later release"),
        ({"alias": ()}, "(did you mean 'aliases'?)"),
        ({"before": "Package('numpy', colour='red')"}, "it was written for another API than 1, or a later release"),
        ({"before": "from core.declarations import Tomorrow"}, "it was written for another API than 1, or a later"),
    ],
    ids=["field", "misspelt", "part", "name"],
)
def test_what_is_not_known_here_is_named(site, fields, told):
    """What only a later release of the same API may know is told with what to do."""
    told = told.replace("API than 1", f"API than {API}")
    assert told in reason_of(site, **fields)


def test_an_older_declaration_may_lack_a_field():
    """A declaration of another API that has no summary, say, is told by its number and not by what it lacks."""
    with pytest.raises(OtherAPI, match=r"written for API 0: has no 'summary'") as raised:
        StrategyDeclaration(name="old", implementation="old:Old", api=0)
    assert raised.value.api == 0


def test_every_part_of_the_contract_exists():
    """What the page lists as covered can be imported."""
    table = PAGE.partition("## What the number covers")[2].partition("Everything else")[0]
    parts = re.findall(r"`(core\.[\w.]+)`", table)
    assert len(parts) > 10
    for part in parts:
        module, _, name = part.rpartition(".")
        if name[0].isupper():
            assert hasattr(import_module(module), name), part
        else:
            import_module(part)


STRANGERS = sorted((ROOT / "examples" / "plugins").glob("*/*/__init__.py"))


@pytest.mark.parametrize("path", STRANGERS, ids=lambda path: path.parent.name)
def test_strangers_write_the_number(path):
    """The packages that show how to do it state the number, and do not import it."""
    text = path.read_text()
    assert re.search(rf"^    api={API},", text, re.MULTILINE)
    assert not re.search(r"import .*\bAPI\b", text)

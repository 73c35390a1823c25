"""docs/versioning.md says what the code does: its snippets run, and its messages are the real ones."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from core.cli import main
from core.declarations import API, Declaration
from core.errors import PluginBroken
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


def test_a_declaration_that_cannot_be_made_says_why(site):
    """A field that this Interlock does not know is named."""
    site.plugin("some-strategy", "strategy", "some_strategy", STRATEGY, api=str(API + 1), colour="red")
    site.ready()
    with pytest.raises(PluginBroken, match=r"TypeError: .*unexpected keyword argument 'colour'"):
        get_registry().find("strategy", "some_strategy")


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

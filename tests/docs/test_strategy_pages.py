"""The pages of the strategies say what the declarations say, and their snippets make plans."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.registry import get_registry

PAGES = Path(__file__).parents[2] / "docs" / "strategies"
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([\w./-]+)\)")
SHOWN = {"ddp.md": ["ddp", "ddp_spawn", "ddp_fork"], "ddp_sharded.md": ["ddp_sharded", "ddp_sharded_spawn"]}
NAMES = sorted(path.name for path in PAGES.glob("*.md"))


@pytest.mark.parametrize("page", NAMES)
def test_page_names_every_option_and_need(page):
    """Every option, every need and every package of a page's strategies stands on the page."""
    text = (PAGES / page).read_text()
    for name in SHOWN.get(page, [page.removesuffix(".md")]):
        declaration = get_registry().find("strategy", name).declaration
        assert declaration is not None
        words = [option.name for option in declaration.options] + [package.name for package in declaration.packages]
        words += [token for need in declaration.needs for token in need.alternatives]
        missing = [word for word in [name, *words] if f"`{word}`" not in text and f"# {word}:" not in text]
        assert not missing, missing


@pytest.mark.parametrize("page", NAMES)
def test_snippet_makes_a_plan(page):
    """The first lines that the page shows make a Trainer with the page's strategy."""
    (snippet,) = SNIPPET.findall((PAGES / page).read_text())
    made: dict[str, object] = {}
    exec(snippet, made)
    assert made["trainer"].plan.strategy.name == page.removesuffix(".md")


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_somewhere(page):
    """What a page links to is there."""
    for target in LINK.findall((PAGES / page).read_text()):
        assert (PAGES / target).exists(), target

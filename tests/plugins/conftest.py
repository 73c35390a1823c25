"""A folder that stands for site-packages, with plugins whose implementation is a module of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from support.fake_dists import module_name, write_plugin

from core import availability
from core.registry import get_registry


class Site:
    """A folder on the path in which fake plugins are installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plugin(self, distribution: str, kind: str, name: str, implementation: str, **fields: object) -> None:
        """Install a plugin: its declaration in one module, ``implementation`` as source in another."""
        module = f"{module_name(distribution)}_implementation"
        (self.folder / f"{module}.py").write_text(dedent(implementation))
        fields.setdefault("implementation", f"{module}:Implementation")
        write_plugin(self.folder, distribution, kind, name, **fields)

    def ready(self) -> None:
        """Let the next look at the installed packages see what has been installed since."""
        _forget()


def _forget() -> None:
    get_registry.cache_clear()
    for remembered in (availability.installed_version, availability.package_problem, availability.run_probe):
        remembered.cache_clear()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Return an empty folder that is first on ``sys.path``; what is imported from it is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    _forget()
    yield Site(folder)
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    _forget()

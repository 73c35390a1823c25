"""A folder that stands for site-packages, and the command line inside this process."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fake_dists import write_metadata, write_plugin

from core import availability
from core.cli import main
from core.discovery import BLOCK_VARIABLE, PLUGINS_VARIABLE, scan_with_notes
from core.registry import Registry, get_registry


class Site:
    """A folder on the path in which fake distributions are installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plugin(self, distribution: str, kind: str, name: str, **fields: object) -> Path:
        """Install one plugin; see :func:`support.fake_dists.write_plugin`."""
        return write_plugin(self.folder, distribution, kind, name, **fields)  # type: ignore[arg-type]

    def metadata(self, distribution: str, *args: object, **fields: object) -> Path:
        """Install metadata alone; see :func:`support.fake_dists.write_metadata`."""
        return write_metadata(self.folder, distribution, *args, **fields)  # type: ignore[arg-type]

    def registry(self) -> Registry:
        """Scan anew, as a process that starts now would."""
        importlib.invalidate_caches()
        return Registry(*scan_with_notes())

    def run(
        self, *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with this folder on its path."""
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": str(self.folder), **(env or {})},
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture(autouse=True)
def clean_slate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what is remembered once per process, and what the shell may say."""
    launcher = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
    for variable in (PLUGINS_VARIABLE, BLOCK_VARIABLE, *launcher):
        monkeypatch.delenv(variable, raising=False)
    _forget()
    yield
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
    yield Site(folder)
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


class Answer:
    """What a command printed and returned."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Return a function that runs a command in this process, with a fresh look at the installed packages."""

    def run(*arguments: str) -> Answer:
        _forget()
        capsys.readouterr()
        code = main(arguments)
        return Answer(code, *capsys.readouterr())

    return run

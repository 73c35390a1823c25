"""The kit as its users run it: a pytest of its own, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 900
ROW = re.compile(r"^(passed|failed|not judged|not claimed|claimed, and not looked at here)[^:]*: (\d+)$", re.MULTILINE)


class Answer:
    """What a session of the kit printed."""

    def __init__(self, code: int, out: str) -> None:
        self.code, self.out = code, out

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows in each part of the report."""
        return {title: int(count) for title, count in ROW.findall(self.out)}

    @property
    def failed(self) -> list[str]:
        """The tests that failed, as pytest names them."""
        return re.findall(r"^FAILED \S*?::(\S+)", self.out, re.MULTILINE)


class Kit:
    """Runs sessions in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site"
        self.site.mkdir()

    def pytest(self, *arguments: str, **environment: str) -> Answer:
        """Run pytest in the folder, with fake distributions of ``site`` on the path."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "INTERLOCK"))}
        path = os.pathsep.join(filter(None, [str(self.site), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            env={**ours, "PYTHONPATH": path, **environment},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return Answer(done.returncode, done.stdout)

    def __call__(self, *arguments: str) -> Answer:
        """Run the kit."""
        return self.pytest("--pyargs", "core.conformance", *arguments)


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """Return the kit in an empty folder."""
    return Kit(tmp_path)

"""The page on moving over speaks of every argument, and its snippet runs."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from core import Trainer

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
TEXT = PAGE.read_text()


def table():
    """Return the rows of the table of arguments: name and verdict."""
    part = TEXT.split("## Trainer, argument by argument")[1]
    return dict(re.findall(r"^\| `(\w+)` \| (same|differs|gone|new) \|", part, re.MULTILINE))


def test_every_argument_of_ours_is_on_the_page():
    """Each argument of the Trainer has a row, and no row that is not gone names anything else."""
    ours = set(inspect.signature(Trainer.__init__).parameters) - {"self"}
    rows = table()
    assert ours == {name for name, verdict in rows.items() if verdict != "gone"}


def test_every_argument_of_the_peer_is_on_the_page():
    """Each argument of Lightning's Trainer has a row that is not called new."""
    pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    theirs = set(inspect.signature(pl.Trainer.__init__).parameters) - {"self"}
    rows = table()
    assert theirs == {name for name, verdict in rows.items() if verdict != "new"}


def test_the_snippet_runs(tmp_path):
    """The example of the page trains."""
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)[1]
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr

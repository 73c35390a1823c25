"""The page about the kit says what the kit does."""

import re
import shlex
from pathlib import Path

import pytest

from core.conformance.plugin import FOLDER
from core.conformance.reference import COARSEST, TOLERANCE

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PUBLISHING = ((DOCS / f"{name}.md").read_text() for name in ("testing-a-plugin", "publishing"))
COMMANDS = re.findall(r"```sh\n(.*?)\n```", PAGE + PUBLISHING.replace("its_name", "single_device"), re.DOTALL)
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CHECKS = {name for path in FOLDER.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}


def test_every_check_is_explained():
    """Each check of the kit stands in a table of the page, and none that the kit does not have."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| `test_")]
    assert {name for row in rows for name in re.findall(r"`(test_\w+)`", row)} == CHECKS


def test_tolerances():
    """The page's tolerances are those of the kit."""
    told = dict(re.findall(r"^\| (\w+|8 bits and less) \| ([\d.e-]+) \|$", PAGE, re.MULTILINE))
    kept = {str(dtype).removeprefix("torch."): value for dtype, value in TOLERANCE.items()}
    assert {name: float(value) for name, value in told.items()} == {**kept, "8 bits and less": COARSEST}


def test_options(kit):
    """The page's options are those of the command line."""
    told = set(re.findall(r"`(--\w+)", PAGE.split("## The report")[0])) - {"--pyargs"}
    group = kit("--help").out.split("interlock: hold")[1].split("\n\n")[0]
    assert set(re.findall(r"^  (--\w+)=", group, re.MULTILINE)) == told


@pytest.mark.processes
@pytest.mark.parametrize("command", COMMANDS)
def test_commands(kit, command):
    """Each command of the page, and of that on publishing, runs; here with those checks only that are done at once."""
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    answer = kit.pytest(*arguments, "-k", "declaration or rules")
    assert answer.code == 0, answer.out
    assert answer.counts["passed"] > 3


@pytest.mark.processes
def test_snippet(kit):
    """The test that the page shows passes in a suite of its own; here with those checks only that are done at once."""
    (snippet,) = SNIPPETS
    (kit.folder / "test_conformance.py").write_text(snippet)
    answer = kit.pytest("test_conformance.py", PYTEST_ADDOPTS="-k 'promises or declaration or rules'")
    assert answer.code == 0, answer.out
    assert "1 passed" in answer.out

"""The set-up script behind every make target: quick where nothing changed, and one line where something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def set_up(folder: Path, python: object = sys.executable, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script for an environment in ``folder``."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        [ROOT / "scripts" / "setup.sh", "dev"],
        env={**own, "PYTHON": str(python), "VENV": str(folder / "env"), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def fake_python(folder: Path, **answers: str) -> Path:
    """Write a Python that answers commands with a word of ``answers`` in them by that shell command."""
    cases = "".join(f'*"{word}"*) {answer} ;;\n' for word, answer in answers.items())
    path = folder / "fakepython"
    path.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}*) exec {sys.executable} "$@" ;;\nesac\n')
    path.chmod(0o755)
    return path


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line with which the script failed, after it has said what it does."""
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if not line.startswith("installing ")]
    assert len(lines) == 1, done.stderr
    assert done.stdout == ""
    return lines[0]


def test_missing_python_is_one_line(tmp_path):
    """Without the interpreter the script says which is missing and how to name another."""
    line = one_line(set_up(tmp_path, "no-such-python"))
    assert line.startswith("set-up failed: there is no no-such-python; install Python 3.10")


def test_old_python_is_one_line(tmp_path):
    """An interpreter that is too old is named with its version and the one that is needed."""
    old = fake_python(tmp_path, **{"%d.%d": "echo 3.8", "version_info": "exit 1"})
    assert "is Python 3.8 and 3.10 is needed" in one_line(set_up(tmp_path, old))


def test_missing_venv_is_one_line(tmp_path):
    """An interpreter without the venv module is told apart, with the package that brings it."""
    bare = fake_python(tmp_path, **{"import venv": "exit 1"})
    assert "has no venv module; on Debian: apt install python3-venv" in one_line(set_up(tmp_path, bare))


def test_failed_download_is_one_line(tmp_path):
    """Where no package index answers, the script says so and where pip's own words are."""
    line = one_line(set_up(tmp_path, PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull))
    assert "no package index answered for setuptools>=77; check the network" in line
    assert "setuptools" in Path(line.rsplit("log: ", 1)[1].rstrip(")")).read_text()


@pytest.fixture
def ready(tmp_path):
    """Return the folder of an environment as a finished installation leaves it."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    state = "cat pyproject.toml constraints.txt scripts/setup.sh | cksum; pwd"
    found = subprocess.run(["sh", "-c", state], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    (tmp_path / "env" / "installed-dev").write_text(found.stdout)
    return tmp_path


def test_what_is_installed_is_left_alone(ready):
    """Where nothing changed since the last installation the script does nothing, not even look for Python."""
    done = set_up(ready, "no-such-python")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_change_of_the_requirements_is_noticed(ready):
    """An environment that was made from other requirements is not taken for finished."""
    stamp = ready / "env" / "installed-dev"
    stamp.write_text(f"1{stamp.read_text()}")
    assert set_up(ready, "no-such-python").returncode == 1

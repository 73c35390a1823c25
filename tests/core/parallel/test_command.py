"""How a program was started is found out from what Python keeps of it."""

import subprocess
import sys

import pytest

SCRIPT = """
import os
os.chdir("/")
from core.parallel.command import script_arguments
from core.session import START_FOLDER
print(START_FOLDER, script_arguments())
"""


@pytest.fixture
def package(tmp_path):
    """Return a folder with the script as a file and as a module."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "again"),
    [
        (["pkg/train.py", "a b"], ["{folder}/pkg/train.py", "a b"]),
        (["./pkg/../pkg/train.py"], ["{folder}/pkg/train.py"]),
        (["-O", "-X", "utf8", "pkg/train.py", "-O"], ["-O", "-X", "utf8", "{folder}/pkg/train.py", "-O"]),
        (["-m", "pkg.train", "pkg.train"], ["-m", "pkg.train", "pkg.train"]),
    ],
)
def test_program_is_started_again_from_where_it_was(package, given, again):
    """Options, module or script and arguments stay; a path is written out, and the folder is that of the start."""
    done = subprocess.run([sys.executable, *given], cwd=package, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{package} {[part.format(folder=package) for part in again]}"


def test_program_given_by_its_full_path(package):
    """A script given by its full path does not tell where it was started; the folder at the import is taken."""
    path = str(package / "pkg" / "train.py")
    done = subprocess.run([sys.executable, path], cwd=package, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"/ {[path]}"

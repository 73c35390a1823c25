"""`explain` and `Trainer(...)` give one answer, word for word."""

import subprocess
import sys

import pytest

from core import Trainer
from core.errors import InterlockError

CASES = [
    {},
    {"strategy": "ddp", "devices": 2},
    {"strategy": "ddp_sharded", "devices": 2, "precision": "16-mixed"},
    {"strategy": "single_device", "devices": 2},
    {"strategy": "ddpp"},
    {"accelerator": "cuda", "precision": "bf16-mixed"},
    {"strategy": "ddp", "devices": 2, "num_nodes": 2},
    {"accelerator": "cpu", "devices": "0,1"},
    {"accelerator": "cpu", "devices": "0"},
    {"accelerator": "cpu", "devices": -1},
    {"precision": "half"},
    {"precision": "fp61"},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_words(case, tmp_path):
    """The command prints the plan that the Trainer has, or the very error that it raises."""
    try:
        said = str(Trainer(**case, logger=False).plan)
        status = 0
    except InterlockError as error:
        said, status = str(error), 1
    options = [f"--{name.replace('_', '-')}={value}" for name, value in case.items()]
    command = [sys.executable, "-m", "core.registry", "explain", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (status, said.strip())

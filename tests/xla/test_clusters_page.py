"""The command that the page on clusters gives for a TPU host, on the runtime of the processors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_xla", reason="torch_xla is not installed; scripts/xla_env.sh makes an environment with it")

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_command_for_a_tpu_host(tmp_path):
    """It trains on four devices, with the variables that the page gives for a machine without a TPU."""
    page = (ROOT / "docs" / "clusters.md").read_text()
    (command,) = re.findall(r"^python examples/digits.py .*--accelerator xla.*$", page, re.MULTILINE)
    (variables,) = re.findall(r"put `(PJRT_DEVICE=CPU [^`]*)` before it", page)
    words = [sys.executable, *command.split()[1:], "--out", str(tmp_path)]
    settings = {**os.environ, **dict(pair.split("=") for pair in variables.split())}
    done = subprocess.run(words, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["val_acc"] > 0.9
    assert "xla_spmd" in json.dumps(summary["plan"])

"""The benchmark of a step on the GPU runs."""

import subprocess
import sys

from support.reference import TESTS


def test_cuda_step():
    """The benchmark times the loop by hand and the Trainer on the GPU, and prints both."""
    script = TESTS.parent / "benchmarks" / "cuda_step.py"
    done = subprocess.run(
        [sys.executable, str(script), "--steps", "100", "--warmup", "20", "--rounds", "2"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert "hand-written" in done.stdout
    assert "interlock" in done.stdout

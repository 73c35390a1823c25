"""``INTERLOCK_TRACE=1`` shows every hook call, in the process that makes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

JOB = """
import sys
import torch
from torch import nn
from core import Module, Trainer

class Tiny(Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    precision, strategy, devices = sys.argv[1:]
    trainer = Trainer(accelerator="cpu", precision=precision, strategy=strategy, devices=int(devices), max_steps=2,
                      accumulate_grad_batches=2, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Tiny(), [torch.ones(2, 2)] * 4)
"""
LINE = re.compile(r"interlock: (?:rank (?P<rank>\d): )? *(?P<hook>\w+) \((?P<who>[^)]*)\) [\d.]+ us(?P<more>.*)")


def trace(folder, *arguments: str, value: str = "1") -> list[re.Match]:
    """Run the job with the variable set and return its trace, line by line."""
    script = folder / "job.py"
    script.write_text(JOB)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "INTERLOCK_TRACE": value, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "interlock:" not in done.stdout
    return [LINE.fullmatch(line) for line in done.stderr.splitlines() if line.startswith("interlock:")]


@pytest.fixture(scope="module")
def lines(tmp_path_factory) -> list[re.Match]:
    """The trace of two steps of two micro-batches; the precision wraps two hooks, and skips the first step."""
    return trace(tmp_path_factory.mktemp("job"), "16-mixed", "single_device", "1")


def test_each_call_is_a_line_of_its_own(lines):
    """Every line names the hook, the plugins that answer, and the time; the order is that of the run."""
    assert all(lines)
    order = [line["hook"] for line in lines]
    step = ["skip_gradient_sync", "backward", "transfer_batch", "backward", "unscale_gradients", "optimizer_step"]
    assert [hook for hook in order if hook in step][-6:] == step
    assert order[0] == "setup_device"
    assert order.index("launch") > order.index("optimizer_step")  # printed when it is over


def test_wrappers_are_shown_around_the_owner(lines):
    """A wrapped hook shows who stands around whom, and how long the owner alone took."""
    step = next(line for line in lines if line["hook"] == "optimizer_step")
    assert step["who"] == "precision 16-mixed > strategy single_device"
    assert re.fullmatch(r", strategy single_device alone [\d.]+ us", step["more"])


def test_calls_that_do_nothing_are_shown(lines):
    """Hooks that the loop leaves out because they have no effect are called and marked under a trace."""
    idle = {line["hook"] for line in lines if line["more"] == ", does nothing"}
    assert {"transfer_batch", "skip_gradient_sync", "reduce"} <= idle


def test_zero_means_off(tmp_path):
    """INTERLOCK_TRACE=0 is as if it were not set."""
    assert trace(tmp_path, "32-true", "single_device", "1", value="0") == []


@pytest.mark.processes
def test_each_rank_signs_its_lines(tmp_path):
    """With several processes each line says whose it is, and no two share a line."""
    lines = trace(tmp_path, "32-true", "ddp", "2")
    assert all(lines)
    for rank in "01":
        assert [line["hook"] for line in lines if line["rank"] == rank].count("optimizer_step") == 2

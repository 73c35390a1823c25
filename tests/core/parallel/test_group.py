"""The process group at the end of a program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

JOB = """
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from core import Module, Trainer

class Net(Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_end(self):
        if self.global_rank:
            time.sleep(0.5)  # so that the other's is still waiting when its callback is given
        self.work = dist.all_reduce(torch.ones(3), async_op=True)
        self.work.get_future().then(linger)

def linger(future):
    # gloo's thread stays in Python, as one does that lets go of tensors on a busy machine
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        time.sleep(0.001)

trainer = Trainer(accelerator="cpu", strategy="ddp", devices=2, max_steps=1, logger=False,
                  enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
module = Net()
trainer.fit(module, DataLoader(torch.ones(8, 2), batch_size=2))
trainer.end_run()
"""


@pytest.mark.processes
def test_threads_let_go_before_the_interpreter_ends(tmp_path):
    """A program ends well while a thread of its group holds tensors, though its run was ended before."""
    script = tmp_path / "job.py"
    script.write_text(JOB)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr

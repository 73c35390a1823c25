"""Processes that are forked in the middle of a run, as a loader's workers are."""

from __future__ import annotations

import gc
import os
import signal
import time

import pytest
import torch.distributed as dist
from support.reference import make_trainer

from core import Module

SECONDS = 20


class ForksWithGarbage(Module):
    """Drops a used group into garbage, and lets a forked process collect garbage."""

    def training_step(self, batch, batch_idx):
        group = dist.new_group([0])
        dist.barrier(group)
        cycle = {"group": group}
        cycle["itself"] = cycle
        dist.destroy_process_group(group)
        del group, cycle
        self.status = status_of_fork(gc.collect)

    def configure_optimizers(self):
        return None


def status_of_fork(work):
    """Return how a forked process ended; it is killed when it takes too long."""
    pid = os.fork()
    if not pid:
        work()
        os._exit(7)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


@pytest.mark.processes
def test_garbage_is_left_to_the_process_that_made_it():
    """A group of an earlier run, in garbage, does not hang a process that is forked later and collects garbage."""
    module = ForksWithGarbage()
    gc.disable()
    try:
        make_trainer(strategy="ddp", max_steps=1).fit(module, [0])
    finally:
        gc.enable()
    assert module.status == 7

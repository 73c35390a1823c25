"""Signals to any process of a run: none of them is left, and the status says what came."""

import os
import signal
import sys
from contextlib import contextmanager

import pytest
from support.scripts import Script

pytestmark = pytest.mark.processes

SCRIPT = """
import os, sys, time
import torch
from support.scripts import note
from support.tiny import Tiny, loader, trainer

strategy, how = sys.argv[1:]

class Endless(Tiny):
    def training_step(self, batch, batch_idx):
        rank = self.trainer.global_rank
        if batch_idx == 1:
            note(f"rank{rank}", os.getpid())
            if how == "stuck" and rank == 1:
                time.sleep(100)  # rank 0 waits for it inside an exchange, where no Python runs
        return super().training_step(batch, batch_idx)

if __name__ == "__main__":
    trainer(strategy, max_epochs=-1).fit(Endless(), loader(400, int(how == "workers")))
"""


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]


@contextmanager
def running(tmp_path, strategy, how="trains", **settings):
    """Give the script, and the numbers of its ranks' processes, once all are at work."""
    with Script(tmp_path, SCRIPT, strategy, how, **settings) as script:
        yield script, [int(script.wait_for(f"rank{rank}")) for rank in (0, 1)]


def finish(script):
    script.note("signal")
    ended = script.finish()
    assert not ended.left, ended
    assert ended.soon_after("signal"), ended
    return ended


CTRL_C = [("ddp", how) for how in ("once", "twice", "terminal", "stuck")]
CTRL_C += [("ddp_spawn", how) for how in ("twice", "terminal")]


@pytest.mark.parametrize(("strategy", "how"), CTRL_C)
def test_ctrl_c(tmp_path, strategy, how):
    """Ctrl-C ends all as Python ends a script: once, twice, from a terminal, or while rank 0 waits for a stuck rank."""
    with running(tmp_path, strategy, how) as (script, _):
        for _ in range(2 if how == "twice" else 1):
            if how == "terminal":  # a terminal sends it to every process in the foreground
                os.killpg(script.process.pid, signal.SIGINT)
            else:
                os.kill(script.process.pid, signal.SIGINT)
        ended = finish(script)
    assert ended.status == -signal.SIGINT, ended
    assert ended.err.rstrip().endswith("KeyboardInterrupt"), ended


@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_parent_that_is_ended(tmp_path, strategy, number):
    """When the process that the user started is killed, ranks and their workers end too, each with one line."""
    with running(tmp_path, strategy, "workers" if number == signal.SIGKILL else "trains") as (script, _):
        os.kill(script.process.pid, number)
        ended = finish(script)
    assert ended.status == -number
    assert f"process {script.process.pid}, which started it, is gone" in ended.err, ended
    assert "Traceback" not in ended.err, ended
    assert "c10" not in ended.err, ended


def test_agent_of_torchrun_that_is_killed(tmp_path):
    """When torchrun's agent is killed, the ranks that it started end, and their workers with them."""
    with running(tmp_path, "ddp", "workers", command=TORCHRUN) as (script, pids):
        assert {script.process.pid, *pids} < set(script.processes())
        os.kill(script.process.pid, signal.SIGKILL)
        assert finish(script).status == -signal.SIGKILL


@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
def test_rank_that_is_killed(tmp_path, strategy):
    """A killed rank ends the run, and the error names its rank, its process and the signal."""
    with running(tmp_path, strategy) as (script, pids):
        os.kill(pids[1], signal.SIGKILL)
        ended = finish(script)
    assert ended.status == 1, ended
    assert f"RankFailed: rank 1 of 2 failed: process {pids[1]} was killed by SIGKILL" in ended.err, ended
    assert ended.err.count("Traceback (most recent call last)") == 1, ended

"""Processes that a launcher started are joined as they are, whatever else is in the environment."""

import sys

import pytest
from support.scripts import run

pytestmark = pytest.mark.processes

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
from support.scripts import note
from support.tiny import Tiny, loader, trainer

strategy, devices, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rank = os.environ.get("RANK", "none")

class Told(Tiny):
    def training_step(self, batch, batch_idx):
        if how == "raises" and batch_idx == 2 and rank == "1":
            note("failing")
            raise ValueError("on purpose")
        return super().training_step(batch, batch_idx)

if how == "own group":
    dist.init_process_group("gloo")
    mine = dist.group.WORLD
note("start" + rank)
tested = trainer(strategy, devices)
module = Told()
if how == "own group":
    wrong = Told()
    wrong.configure_optimizers = lambda: 1 / 0
    try:
        tested.fit(wrong, loader())
    except Exception as error:
        note("caught" + rank, error)
tested.fit(module, loader())
tested.validate(module, loader(), verbose=False)
if how == "own group":
    assert dist.group.WORLD is mine
    box = torch.tensor(1.0)
    dist.all_reduce(box)
    assert box == 2
    dist.destroy_process_group()
note("weights" + rank, module.layer.weight.tolist())
note("plan" + rank, tested.plan)
"""


def weights(ended, *ranks):
    return {ended.note(f"weights{rank}") for rank in ranks}


def test_torchrun(tmp_path):
    """Under torchrun ranks train together in the script's own process group, also after a failure that all caught."""
    ended = run(tmp_path, SCRIPT, "ddp", 2, "own group", command=TORCHRUN)
    assert ended.status == 0, ended
    assert all("division by zero" in ended.note(f"caught{rank}") for rank in (0, 1)), ended
    assert len(weights(ended, 0, 1)) == 1, ended
    assert "started by torchrun (WORLD_SIZE=2)" in ended.note("plan0"), ended


def test_torchrun_with_a_rank_that_raises(tmp_path):
    """Under torchrun too a failing rank ends the job soon, and its traceback is the first."""
    ended = run(tmp_path, SCRIPT, "ddp_sharded", 2, "raises", command=TORCHRUN)
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.soon_after("failing"), ended
    assert ended.first_traceback == ["ValueError: on purpose", "raised on rank 1 of 2"], ended


REFUSED = """
import os
from support.scripts import note
from support.tiny import trainer

rank = os.environ["RANK"]
note("start" + rank)
for strategy, devices in (("ddp", 1), ("ddp", 4), ("ddp_spawn", 2)):
    try:
        trainer(strategy, devices)
    except ValueError as error:
        note(f"{strategy}{devices}-{rank}", f"{type(error).__name__}: {error}")
"""


def test_torchrun_against_the_request(tmp_path):
    """A request for another number of processes, or for a strategy that starts its own, is refused before any wait."""
    ended = run(tmp_path, REFUSED, command=TORCHRUN)
    assert ended.status == 0, ended
    assert ended.soon_after("start1"), ended
    for rank in (0, 1):
        for devices, processes in ((1, "1 process;"), (4, "4 processes;")):
            refusal = ended.note(f"ddp{devices}-{rank}")
            assert refusal.startswith("InvalidCombination"), refusal
            assert f"WORLD_SIZE=2), but devices={devices} x num_nodes=1 makes {processes}" in refusal
        assert "excludes launched.external" in ended.note(f"ddp_spawn2-{rank}")


def test_stray_variables(tmp_path):
    """Variables that are no launcher's whole set are left alone, and the plan says so."""
    stray = {"LOCAL_RANK": "3", "NODE_RANK": "1", "WORLD_SIZE": "8"}
    ended = run(tmp_path, SCRIPT.replace('os.environ.get("RANK", "none")', '"x"'), "ddp", 1, "trains", env=stray)
    assert ended.status == 0, ended
    assert "LOCAL_RANK" in ended.note("planx"), ended
    assert "no launcher" in ended.note("planx"), ended

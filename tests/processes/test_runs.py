"""Several runs in one program, and what a run leaves to the next one and to the program."""

import json
import re

import pytest
from support.scripts import run

pytestmark = pytest.mark.processes

SEVERAL = """
import json, os
import torch
import torch.distributed as dist
from support.scripts import note
from support.tiny import Tiny, loader, trainer

rank, module = int(os.environ.get("RANK", 0)), Tiny()

def weight():
    return module.layer.weight.detach().clone()

seen = []
first, second, alone = trainer("ddp"), trainer("ddp_sharded"), trainer("ddp", 1)
for tested in (first, second, alone, first):
    before, tested.max_epochs = weight(), tested.current_epoch + 1
    tested.fit(module, loader())
    assert not weight().equal(before)
    seen.append([weight().tolist(), tested.current_epoch, tested.global_step])
first.save_checkpoint("after.ckpt")
seen.append(second.validate(module, loader(), verbose=False))
seen.append(dist.get_world_size())
together = second.strategy
together.barrier()
together.barrier("mine")
seen.append([together.broadcast(rank), together.reduce(torch.tensor(rank)).item(), together.reduce(rank, "sum").item()])
seen.append([together.reduce_boolean_decision(rank == 0), together.reduce_boolean_decision(rank == 0, all=False)])
seen.append(together.all_gather(torch.tensor(rank)).tolist())
note(f"rank{rank}", json.dumps(seen))
"""


def test_several_runs(tmp_path):
    """Runs of several Trainers follow each other in one program, on all ranks or on each alone, and end in silence."""
    ended = run(tmp_path, SEVERAL)
    assert (ended.status, ended.err) == (0, ""), ended
    assert not ended.left, ended
    ranks = [json.loads(ended.note(f"rank{rank}")) for rank in (0, 1)]
    assert ranks[0] == ranks[1], ended
    assert [steps for _, _, steps in ranks[0][:4]] == [5, 5, 10, 10]
    assert ranks[0][-3:] == [[0, 0.5, 1], [False, True], [0, 1]], "what trainer.strategy does for all ranks"
    assert (tmp_path / "after.ckpt").is_file()


AFTERWARDS = """
import os, sys, time
import core.parallel.children
from support.tiny import Tiny, loader, trainer

if sys.argv[1] == "lingers":
    core.parallel.children.EXIT_WAIT = 2.0
trainer("ddp").fit(Tiny(), loader())
if "RANK" in os.environ:
    sys.exit(7) if sys.argv[1] == "fails" else time.sleep(100)
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("fails", "rank 1 of 2 failed after the run: process {} ended with exit status 7"),
        ("lingers", "children were still running 2 s after rank 0 had finished; they were ended"),
    ],
    ids=["fails", "lingers"],
)
def test_rank_after_the_run(tmp_path, how, said):
    """The program's status is bad when another rank fails, or does not end, after the run; and why is said."""
    ended = run(tmp_path, AFTERWARDS, how)
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert re.fullmatch(re.escape(said).replace(r"\{\}", r"\d+"), ended.err.strip()), ended


CAUGHT = """
import os, sys
from support.scripts import note
from support.tiny import Tiny, loader, trainer

rank = int(os.environ.get("RANK", 0))
wrong, tested = Tiny(), trainer("ddp")
wrong.configure_optimizers = lambda: 1 / 0
try:
    tested.fit(wrong, loader())
except Exception as error:
    note(f"caught{rank}", error)
tested.fit(Tiny(), loader())
"""


def test_run_after_a_failure_that_was_caught(tmp_path):
    """A run that failed has ended the other ranks; the next one says so, why, and what to do."""
    ended = run(tmp_path, CAUGHT)
    assert ended.status == 1, ended
    assert not ended.left, ended
    last = [line for line in ended.err.splitlines() if "InterlockError" in line]
    assert "the other processes of this program were ended when an earlier run failed" in last[-1], ended
    assert "division by zero" in last[-1], ended
    assert "start the program again" in ended.err, ended


ONE_RANK_SAVES = """
import sys
import core.trainer
from core import Callback
from support.scripts import note
from support.tiny import Tiny, loader, trainer

core.trainer.SAVE_TIMEOUT = 3.0

class Saving(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx == 2 and trainer.is_global_zero:
            note("saving")
            trainer.save_checkpoint("one.ckpt")

if __name__ == "__main__":
    trainer(sys.argv[1], callbacks=[Saving()]).fit(Tiny(), loader())
"""


@pytest.mark.parametrize("strategy", ["ddp_sharded", "ddp_spawn"])
def test_checkpoint_saved_by_one_rank(tmp_path, strategy):
    """A checkpoint that only rank 0 saves is an error that says who did not come and where to look, not a wait."""
    ended = run(tmp_path, ONE_RANK_SAVES, strategy)
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.soon_after("saving", besides=3), ended
    assert "WaitTimeout: rank 0 waited 3 s at 'save_checkpoint' for rank 1 of 2" in ended.err, ended
    assert "if trainer.is_global_zero" in ended.err, ended
    assert not list(tmp_path.rglob("*.ckpt*")), ended

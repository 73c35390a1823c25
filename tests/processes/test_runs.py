"""Several runs in one program, and what a run leaves to the next one and to the program."""

import json

import pytest
from support.scripts import run

pytestmark = pytest.mark.processes

SEVERAL = """
import json, os, sys, time
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
seen.append(second.validate(module, loader(), verbose=False))
first.save_checkpoint("after.ckpt")
seen.append(dist.get_world_size())
note(f"rank{rank}", json.dumps(seen))
if sys.argv[1] == "ends badly" and rank == 1:
    sys.exit(7)
if sys.argv[1] == "lingers":
    import core.parallel.children
    core.parallel.children.EXIT_WAIT = 2.0
    time.sleep(100 * rank)
"""


@pytest.mark.parametrize("end", ["ends well", "ends badly", "lingers"])
def test_several_runs(tmp_path, end):
    """Runs of several Trainers follow each other in one program, whose status is bad when any rank's is."""
    ended = run(tmp_path, SEVERAL, end)
    ranks = [json.loads(ended.note(f"rank{rank}")) for rank in (0, 1)]
    assert ranks[0] == ranks[1], ended
    assert [steps for _, _, steps in ranks[0][:4]] == [5, 5, 10, 10]
    assert (tmp_path / "after.ckpt").is_file()
    assert not ended.left, ended
    if end == "ends well":
        assert ended.status == 0, ended
        assert ended.err == "", ended
        return
    assert ended.status == 1, ended
    if end == "ends badly":
        assert "rank 1 of 2 failed after the run: process" in ended.err, ended
        assert "ended with exit status 7" in ended.err, ended
    else:
        assert "children were still running 2 s after rank 0 had finished; they were ended" in ended.err, ended


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

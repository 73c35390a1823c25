"""One rank fails: all end soon, and its words come first."""

import re

import pytest
from support.scripts import run

pytestmark = pytest.mark.processes

SCRIPT = """
import sys, time
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
import torch
from core import Callback
from support.scripts import note
from support.tiny import Tiny, trainer

strategy, devices, place, bad = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])

def maybe_fail(here):
    if here == place and dist.get_rank() == bad:
        note("failing")
        raise ValueError("on purpose")

class Data(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        maybe_fail("dataset")
        return [torch.ones(4)]

class Failing(Tiny):
    def training_step(self, batch, batch_idx):
        if batch_idx == 2:
            maybe_fail("training_step")
            if place == "busy" and dist.get_rank() == 0:
                time.sleep(50)
            if place == "busy":
                note("failing")
                raise ValueError("on purpose")
        return super().training_step(batch, batch_idx)
    def validation_step(self, batch, batch_idx):
        maybe_fail("validation_step")
        super().validation_step(batch, batch_idx)

class Late(Callback):
    def setup(self, trainer, module, stage):
        maybe_fail("setup")
    def on_exception(self, trainer, module, exception):
        if dist.get_rank() == bad and place == "training_step":
            trainer.save_checkpoint("late.ckpt")  # would wait for the others if they had not been told

if __name__ == "__main__":
    trainer(strategy, devices, callbacks=[Late()]).fit(Failing(), DataLoader(Data(), 4), DataLoader(Data(), 4))
"""
PLACES = ["training_step", "validation_step", "dataset", "setup"]
CASES = [("ddp", 2, place, 1) for place in PLACES]
CASES += [("ddp", 2, "training_step", 0), ("ddp", 3, "training_step", 1)]
CASES += [("ddp_spawn", 2, place, 1) for place in ("training_step", "setup")]
CASES += [("ddp_spawn", 3, "dataset", 0), ("ddp_sharded", 2, "training_step", 1), ("ddp_sharded", 2, "setup", 0)]


@pytest.mark.parametrize(("strategy", "devices", "place", "bad"), CASES)
def test_rank_that_raises(tmp_path, strategy, devices, place, bad):
    """Whichever rank raises, and wherever, the run ends soon and badly, and its traceback comes first with its rank."""
    ended = run(tmp_path, SCRIPT, strategy, devices, place, bad)
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.soon_after("failing"), ended
    assert ended.first_traceback == ["ValueError: on purpose", f"raised on rank {bad} of {devices}"], ended
    # ranks that only hear of it say nothing, but for the process that the user started
    speakers = re.findall(r"^(?:\[rank|Process rank )(\d+)(?:\]: Traceback| of)", ended.err, flags=re.M)
    by_user = [] if strategy == "ddp_spawn" else ["0"]
    assert {*speakers, *by_user} == {str(bad), *by_user}, ended
    if bad != 0 or not by_user:
        assert f"RankFailed: rank {bad} of {devices} failed: ValueError: on purpose" in ended.err, ended


def test_rank_zero_that_does_not_listen(tmp_path):
    """Rank 0 is ended too when it is busy outside any exchange, and says why."""
    ended = run(tmp_path, SCRIPT, "ddp", 2, "busy", 1)
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.soon_after("failing"), ended
    assert ended.first_traceback == ["ValueError: on purpose", "raised on rank 1 of 2"], ended
    assert "rank 1 of 2 failed: ValueError: on purpose\nrank 0 does not react and is ended" in ended.err, ended

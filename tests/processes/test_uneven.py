"""Ranks with different numbers of batches: they end together, and nobody waits."""

import json

import pytest
from support.scripts import run

pytestmark = pytest.mark.processes

SCRIPT = """
import json, os, warnings
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from core import seed_everything
from support.scripts import note
from support.tiny import Tiny, trainer

rank = int(os.environ.get("RANK", 0))

class Rows(IterableDataset):
    def __init__(self, *counts):
        self.count = counts[rank]
    def __iter__(self):
        for number in range(self.count):
            yield torch.full((4,), float(10 * rank + number))

def rows(*counts):
    return DataLoader(Rows(*counts), batch_size=1)

class Counting(Tiny):
    def __init__(self):
        super().__init__()
        self.steps = 0
    def training_step(self, batch, batch_idx):
        self.steps += 1
        return 1e-4 * self.layer(batch).square().mean()
    def on_train_epoch_end(self):
        self.log("rank", float(rank), sync_dist=True)
        if rank == 1:
            self.log("of one", 3.0, sync_dist=True)
    def validation_step(self, batch, batch_idx):
        for reduction in ("mean", "sum", "max"):
            self.log(reduction, batch.mean(), sync_dist=True, reduce_fx=reduction)
        self.log("each", batch.mean(), sync_dist=True, on_step=True, on_epoch=True)

known, told = [], []
tested, module = trainer("ddp", max_epochs=2), Counting()
tested.fit(module, rows(3, 2), rows(3, 2))
seen = [{"steps": module.steps, "progress": tested.global_step, "weight": module.layer.weight.tolist()}]
seen.append({name: float(value) for name, value in tested.callback_metrics.items() if name != "each_step"})
for counts in ((2, 0), (0, 2), (0, 0)):
    seen.append(tested.validate(module, rows(*counts), verbose=False)[0])
# loaders that know their length, and that each rank has filled by itself
for counts, window in (((5, 3), 1), ((5, 3), 2), ((2, 6), 4)):
    own = DataLoader(torch.ones(counts[rank], 4), batch_size=1)
    tested = trainer("ddp", max_epochs=2, use_distributed_sampler=False, accumulate_grad_batches=window)
    module = Counting()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tested.fit(module, own)
    known.append([module.steps, tested.global_step, tested.num_training_batches, module.layer.weight.tolist()])
    told.append(sorted(str(each.message) for each in caught if "batches" in str(each.message)))
module = Counting()
tested = trainer("ddp", max_epochs=1, accumulate_grad_batches=2)
tested.fit(module, rows(5, 3))
streamed = [module.steps, tested.global_step, module.layer.weight.tolist()]
note(f"rank{rank}", json.dumps(seen))
note(f"known{rank}", json.dumps([known, told, streamed]))

class Drawn(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return torch.rand(4)

class Keeping(Tiny):
    def predict_step(self, batch, batch_idx):
        return batch.tolist()

drawn = []
for workers in (False, True):
    seed_everything(3, workers=workers)
    drawn.append(tested.predict(Keeping(), DataLoader(Drawn(), num_workers=1)))
note(f"drawn{rank}", json.dumps(drawn))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The script's end; it runs once for all tests."""
    ended = run(tmp_path_factory.mktemp("uneven"), SCRIPT)
    assert ended.status == 0, ended
    return ended


def test_uneven_loaders(ended):
    """An epoch ends on all ranks when the first has no batch left; evaluation counts every batch, wherever it was."""
    ranks = [json.loads(ended.note(f"rank{rank}")) for rank in (0, 1)]
    assert ranks[0] == ranks[1], ended
    trained, validated, only_zero, only_one, nothing = ranks[0]
    assert (trained["steps"], trained["progress"]) == (4, 4)
    assert (validated["rank"], validated["of one"]) == (0.5, 3.0)
    values = [0, 1, 2, 10, 11]
    assert validated["mean"] == validated["each_epoch"] == sum(values) / 5
    assert (validated["sum"], validated["max"]) == (sum(values), 11)
    assert (only_zero["mean"], only_zero["sum"], only_zero["max"]) == (0.5, 1, 1)
    assert (only_one["mean"], only_one["sum"], only_one["max"]) == (10.5, 21, 11)
    assert nothing == {}


def test_loaders_of_different_lengths(ended):
    """Where ranks know different lengths each epoch has the shortest, and who differs is told both numbers."""
    (known, told, streamed), (others, told_others, streamed_others) = (
        json.loads(ended.note(f"known{rank}")) for rank in (0, 1)
    )
    assert known == others, ended
    assert [each[:3] for each in known] == [[6, 6, 3], [6, 4, 3], [4, 2, 2]]
    window = "accumulate_grad_batches=4 is more than the 2 batches of an epoch: each epoch is one window of 2"
    for rank, (lines, counts) in enumerate(zip((told, told_others), ((5, 5, 2), (3, 3, 6)), strict=True)):
        for number, (own, least, most) in enumerate(zip(counts, (3, 3, 2), (5, 5, 6), strict=True)):
            line = f"rank {rank} has {own} batches, others from {least} to {most}: each epoch ends with the shortest"
            assert lines[number] == ([window] if number == 2 and rank == 0 else []) + [line], ended
    # the last window that both have part of: one rank has two batches left, the other one
    assert (streamed[0], streamed_others[0]) == (4, 3), ended
    assert streamed[1:] == streamed_others[1:], ended
    assert streamed[1] == 2


def test_workers_of_ranks_differ_where_they_are_to(ended):
    """After seed_everything(seed) the ranks' workers draw the same, with workers=True each rank's its own numbers."""
    same, differing = zip(*(json.loads(ended.note(f"drawn{rank}")) for rank in (0, 1)), strict=True)
    assert same[0] == same[1], ended
    assert differing[0] != differing[1], ended

"""Ranks with different numbers of batches: they end together, and nobody waits."""

import json

import pytest
from support.scripts import run

pytestmark = pytest.mark.processes

SCRIPT = """
import json, os
import torch
from torch.utils.data import DataLoader, IterableDataset
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
    def validation_step(self, batch, batch_idx):
        for reduction in ("mean", "sum", "max"):
            self.log(reduction, batch.mean(), sync_dist=True, reduce_fx=reduction)
        self.log("each", batch.mean(), sync_dist=True, on_step=True, on_epoch=True)

tested, module = trainer("ddp", max_epochs=2), Counting()
tested.fit(module, rows(3, 2), rows(3, 2))
seen = [{"steps": module.steps, "progress": tested.global_step, "weight": module.layer.weight.tolist()}]
seen.append({name: float(value) for name, value in tested.callback_metrics.items() if name != "each_step"})
for counts in ((2, 0), (0, 2), (0, 0)):
    seen.append(tested.validate(module, rows(*counts), verbose=False)[0])
note(f"rank{rank}", json.dumps(seen))
"""


def test_uneven_loaders(tmp_path):
    """An epoch ends on all ranks when the first has no batch left; evaluation counts every batch, wherever it was."""
    ended = run(tmp_path, SCRIPT)
    assert ended.status == 0, ended
    ranks = [json.loads(ended.note(f"rank{rank}")) for rank in (0, 1)]
    assert ranks[0] == ranks[1], ended
    trained, validated, only_zero, only_one, nothing = ranks[0]
    assert (trained["steps"], trained["progress"]) == (4, 4)
    values = [0, 1, 2, 10, 11]
    assert validated["mean"] == validated["each_epoch"] == sum(values) / 5
    assert (validated["sum"], validated["max"]) == (sum(values), 11)
    assert (only_zero["mean"], only_zero["sum"], only_zero["max"]) == (0.5, 1, 1)
    assert (only_one["mean"], only_one["sum"], only_one["max"]) == (10.5, 21, 11)
    assert nothing == {}

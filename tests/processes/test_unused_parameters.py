"""Parameters that the loss does not use, under data-parallel ranks."""

import json

import pytest
from support.scripts import run

pytestmark = pytest.mark.processes

SCRIPT = """
import json, os, sys
import torch
from torch import nn
from builtin_plugins.ddp.strategy import DDPStrategy
from support.scripts import note
from support.tiny import Tiny, loader, trainer

cases, rank = json.loads(sys.argv[1]), int(os.environ.get("RANK", 0))

class Branching(Tiny):
    def __init__(self, where):
        super().__init__()
        self.where = where
        self.branch = nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        note(f"step{batch_idx}")
        unused = {"even": batch_idx % 2 == 0, "one rank": batch_idx == 1 and rank == 1, "never": False}[self.where]
        used = self.layer(batch[0]) if unused else self.layer(batch[0]) + self.branch(batch[0])
        return used.square().mean()

weights = []
for find, where, window in cases:
    module = Branching(where)
    trainer(DDPStrategy(find_unused_parameters=find), accumulate_grad_batches=window).fit(module, loader())
    weights.append([value.tolist() for value in module.parameters()])
note(f"rank{rank}", json.dumps(weights))
"""


@pytest.mark.parametrize(("where", "last"), [("even", 0), ("one rank", 1)])
def test_unused_parameters_refused(tmp_path, where, last):
    """Without the option the first step that leaves parameters out is an error with their names and the option."""
    ended = run(tmp_path, SCRIPT, json.dumps([[False, where, 1]]))
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert not (tmp_path / f"step{last + 1}").exists(), ended
    assert ended.soon_after(f"step{last}"), ended
    assert "the loss does not use branch.weight, branch.bias, and the other ranks wait" in ended.err, ended
    assert "strategy=DDPStrategy(find_unused_parameters=True)" in ended.err, ended


def test_unused_parameters_allowed(tmp_path):
    """With the option, or where all are used, also over accumulated windows, the ranks train to equal weights."""
    ended = run(tmp_path, SCRIPT, json.dumps([[True, "even", 1], [True, "never", 1], [False, "never", 3]]))
    assert ended.status == 0, ended
    ranks = [json.loads(ended.note(f"rank{rank}")) for rank in (0, 1)]
    assert ranks[0] == ranks[1], ended
    assert ranks[0][0] != ranks[0][1], ended

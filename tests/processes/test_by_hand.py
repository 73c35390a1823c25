"""Modules that optimize by themselves, on two ranks: each of a step's backward passes is exchanged, once."""

import json

import pytest
import torch
from support.by_hand import KINDS, Gan, loader
from support.nets import quiet_trainer
from support.scripts import run

from core.errors import InterlockError

pytestmark = pytest.mark.processes

SCRIPT = """
import json, os
from builtin_plugins.ddp.strategy import DDPStrategy
from builtin_plugins.zero.strategy import ZeroStrategy
from support.by_hand import KINDS, Gan, loader
from support.scripts import note
from support.tiny import trainer

found = {kind: {} for kind in KINDS}
for kind in KINDS:
    for name, strategy in {
        "ddp": DDPStrategy(find_unused_parameters=True),
        "zero": ZeroStrategy(find_unused_parameters=True),
        "ddp_sharded": "ddp_sharded",
    }.items():
        module, tested = Gan(kind), trainer(strategy)
        tested.fit(module, loader(4))
        tested.end_run()
        found[kind][name] = {name: value.tolist() for name, value in module.state_dict().items()}
trainer("ddp").fit(Gan("past"), loader(4))
note(f"rank{os.environ.get('RANK', 0)}", json.dumps(found))
"""


def test_two_ranks_by_hand_equal_one(tmp_path):
    """A GAN with toggled nets, sums of backward passes, and passes kept back train as one process on joined batches.

    Gradients that no plugin took part in are warned of.
    """
    ended = run(tmp_path, SCRIPT)
    assert ended.status == 0, ended
    assert "each rank steps with its own gradients, unless you exchanged them" in ended.err, ended
    for rank in (0, 1):
        found = json.loads(ended.note(f"rank{rank}"))
        for kind in KINDS:
            alone = Gan(kind)
            quiet_trainer().fit(alone, loader(8))
            assert set(found[kind]) == {"ddp", "zero", "ddp_sharded"}
            for name, weights in found[kind].items():
                for key, value in alone.state_dict().items():
                    distance = (torch.tensor(weights[key]) - value).abs().max()
                    assert distance < 1e-6, (rank, kind, name, key, distance)


SKIPS = """
import core.loops.step
from support.scripts import note
from support.tiny import Tiny, loader, trainer

class Skips(Tiny):
    def on_train_batch_start(self, batch, batch_idx):
        note("step")
        return -1 if batch_idx == 1 and self.global_rank == 1 else None

core.loops.step.SKIP_TIMEOUT = 2.0
trainer("ddp").fit(Skips(), loader())
"""


def test_an_epoch_that_one_rank_skips_is_named(tmp_path):
    """Where one rank alone skips the rest of an epoch, the run ends soon and says so, in place of waiting for it."""
    ended = run(tmp_path, SKIPS)
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.soon_after("step", besides=2.0), ended
    assert "rank 1 waited 2 s at 'on_train_batch_start returned -1' for rank 0 of 2" in ended.err, ended


@pytest.mark.parametrize("strategy", ["ddp", "zero"])
def test_parameters_frozen_by_hand_are_named(strategy):
    """A loss that leaves out what was frozen after the model was wrapped is refused with the parameters' names."""
    with pytest.raises(InterlockError, match=r"the loss does not use critic\.weight, critic\.bias"):
        quiet_trainer(strategy=strategy, devices=1).fit(Gan("toggled"), loader(8))

"""The order inside a step where something is out of the ordinary; tests/test_matrix.py has every combination."""

from __future__ import annotations

import pytest
from support.observed import in_order, observe
from support.reference import GLOBAL_BATCH, Net, dataset, make_trainer
from torch.utils.data import DataLoader

from core import Callback


@pytest.mark.parametrize("bad", [(0,), (1,), (4,), (0, 3), (0, 1, 2, 3, 4)])
def test_skipped_windows(bad):
    """A window with an infinite loss is unscaled once, not clipped, not stepped, and moves no schedule; others are."""
    seen = observe("single_device", "16-mixed", 1, bad_batches=bad)
    assert seen.events == in_order("16-mixed", exchanges=False, skips=False, bad_batches=bad)
    assert seen.steps == 3


class Notes(Callback):
    """Notes what is done to which optimizer."""

    def __init__(self):
        self.events = []

    def setup(self, trainer, module, stage):
        hooks = trainer._run.hooks
        unscale, clip, step = hooks.unscale_gradients, hooks.clip_gradients, hooks.optimizer_step
        hooks.unscale_gradients = lambda many: self._note("unscale", *many) or unscale(many)
        hooks.clip_gradients = lambda module, one, *how: self._note("clip", one) or clip(module, one, *how)
        hooks.optimizer_step = lambda one, closure: self._note("step", one) or step(one, closure)

    def _note(self, what, *optimizers):
        self.events.append((what, *(type(optimizer).__name__ for optimizer in optimizers)))


def test_two_optimizers():
    """Two optimizers are unscaled together, so that both step or none; then each is clipped and steps, in turn."""
    notes = Notes()
    trainer = make_trainer(max_epochs=1, precision="16-mixed", gradient_clip_val=0.5, callbacks=notes)
    trainer.fit(Net("two"), DataLoader(dataset(2), GLOBAL_BATCH))
    each = [("clip", "SGD"), ("step", "SGD"), ("clip", "AdamW"), ("step", "AdamW")]
    assert notes.events == [("unscale", "SGD", "AdamW"), *each] * 2


def test_without_clipping():
    """Where no clipping is asked for, no clipping is called."""
    notes = Notes()
    trainer = make_trainer(max_epochs=1, gradient_clip_val=0, callbacks=notes)
    trainer.fit(Net("sgd"), DataLoader(dataset(2), GLOBAL_BATCH))
    assert notes.events == [("step", "SGD")] * 2

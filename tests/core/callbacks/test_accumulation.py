"""GradientAccumulationScheduler against a loop by hand."""

from dataclasses import replace

import pytest
import torch
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core.callbacks import GradientAccumulationScheduler
from core.errors import InvalidArgument, InvalidCombination


def by_hand(windows, batches):
    """Return the weight after one epoch for each window, each epoch over ``batches``."""
    torch.manual_seed(3)
    module = Scored()
    optimizer = module.configure_optimizers()
    for window in windows:
        data = list(loader(batches))
        for start in range(0, batches, window):
            part = data[start : start + window]
            for batch in part:
                (module.layer(batch).pow(2).mean() * 1e-3 / len(part)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return module.layer.weight


def test_window_changes_with_the_epoch():
    """Each epoch trains with the window that the table gives it, the last partial window by its own size."""
    torch.manual_seed(3)
    module = Scored()
    trainer = quiet_trainer(callbacks=[GradientAccumulationScheduler({1: 2, 3: 4})], max_epochs=4)
    trainer.fit(module, loader(5))
    assert trainer.global_step == 5 + 3 + 3 + 2
    assert torch.allclose(module.layer.weight, by_hand([1, 2, 2, 4], 5), atol=1e-7)


@pytest.mark.parametrize("table", [{}, {-1: 2}, {0: 0}, {1: 1.5}, [2], {"a": 2}], ids=str)
def test_refused_tables(table):
    """A table that is empty, no dict, or has a number outside its range is refused at once."""
    with pytest.raises(InvalidArgument):
        GradientAccumulationScheduler(table)


def test_two_numbers_are_refused():
    """A number for the Trainer and a table contradict each other."""
    trainer = quiet_trainer(callbacks=[GradientAccumulationScheduler({2: 4})], accumulate_grad_batches=3)
    with pytest.raises(InvalidArgument, match="accumulate_grad_batches=3 and a GradientAccumulationScheduler"):
        trainer.fit(Scored(), loader())


def test_strategy_that_cannot_accumulate(monkeypatch):
    """What a strategy cannot do is refused before the first step, with the reason."""
    trainer = quiet_trainer(callbacks=[GradientAccumulationScheduler({2: 4})])
    parties = [replace(party, provides=party.provides - {"grad_sync.skip"}) for party in trainer.plan.parties]
    monkeypatch.setattr(type(trainer.plan), "parties", property(lambda plan: parties))
    with pytest.raises(InvalidCombination, match="accumulate_grad_batches=4 exchanges gradients once per window"):
        trainer.fit(Scored(), loader())


def test_manual_optimization_is_refused():
    """A module that optimizes by itself accumulates by itself."""
    module = Scored()
    module.automatic_optimization = False
    with pytest.raises(InvalidArgument, match="automatic_optimization = False"):
        quiet_trainer(callbacks=[GradientAccumulationScheduler({0: 2})]).fit(module, loader())

"""When a fit validates and when it ends."""

import datetime

import pytest
import torch
from support.nets import Net, loader, quiet_trainer
from torch.utils.data import DataLoader, IterableDataset

from core import Callback
from core.errors import InvalidArgument


def order(net):
    """Return the calls as one letter each: t for a training step, v for a validation pass's first batch."""
    return "".join(kind[0] for kind, index in net.calls if kind == "train" or index == 0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "ttttvttttv"),
        ({"check_val_every_n_epoch": 2}, "ttttttttv"),
        ({"val_check_interval": 0.5}, "ttvttvttvttv"),
        ({"val_check_interval": 3}, "tttvttttvt"),
        ({"val_check_interval": 3, "check_val_every_n_epoch": None}, "tttvtttvtt"),
        ({"limit_val_batches": 0}, "tttttttt"),
        ({"limit_train_batches": 2}, "ttvttv"),
        ({"limit_train_batches": 0.5}, "ttvttv"),
        ({"max_steps": 6}, "ttttvtt"),
        ({"num_sanity_val_steps": 2}, "vttttvttttv"),
        ({"fast_dev_run": True}, "tv"),
        ({"overfit_batches": 1}, "tvtv"),
    ],
)
def test_validation_comes_when_the_settings_say(settings, expected):
    """Two epochs of four batches are validated at the batches that the settings name."""
    net = Net()
    quiet_trainer(**{"max_epochs": 2, "num_sanity_val_steps": 0, **settings}).fit(net, loader(), loader(2))
    assert order(net) == expected


def test_the_sanity_check_leaves_random_numbers_and_metrics_alone():
    """A fit with a sanity check draws the same numbers as one without, and keeps no metric of it."""
    drawn = []
    for steps in (0, 2):
        torch.manual_seed(3)
        net = Net()
        trainer = quiet_trainer(num_sanity_val_steps=steps, max_epochs=0)
        trainer.fit(net, loader(shuffle=True), loader(2, shuffle=True))
        drawn.append(torch.rand(1).item())
        assert trainer.callback_metrics == {}
    assert drawn[0] == drawn[1]


def test_an_interval_longer_than_the_epoch_is_refused_with_both_numbers():
    """val_check_interval above the batches of an epoch is an error that names the two numbers and the way out."""
    with pytest.raises(InvalidArgument, match=r"val_check_interval=9 is more than the 4 batches") as refused:
        quiet_trainer(val_check_interval=9).fit(Net(), loader(), loader())
    assert "check_val_every_n_epoch=None" in str(refused.value)


class Stream(IterableDataset):
    """Seven samples without a length."""

    def __iter__(self):
        return iter(torch.ones(7, 4))


def test_a_loader_without_a_length_is_read_to_its_end():
    """An iterable dataset trains all its batches, with a whole number as limit fewer, with a fraction not at all."""
    for limit, steps in [(None, 4), (3, 3)]:
        trainer = quiet_trainer(limit_train_batches=limit)
        trainer.fit(Net(), DataLoader(Stream(), batch_size=2))
        assert trainer.global_step == steps
    with pytest.raises(InvalidArgument, match="fraction of a loader without a length"):
        quiet_trainer(val_check_interval=0.5).fit(Net(), DataLoader(Stream(), batch_size=2))


def test_max_time_ends_a_fit_that_has_no_other_end():
    """A fit without limit of epochs or steps ends when its time is over."""
    trainer = quiet_trainer(max_epochs=-1, max_time=datetime.timedelta(seconds=0.05))
    trainer.fit(Net(), loader())
    assert trainer.global_step > 0


class StopAt(Callback):
    """Wishes to stop after a number of batches."""

    def __init__(self, batches):
        self.batches = batches

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step >= self.batches:
            trainer.should_stop = True


@pytest.mark.parametrize(("minimum", "steps"), [({}, 3), ({"min_steps": 6}, 6), ({"min_epochs": 2}, 8)])
def test_should_stop_waits_for_the_minimum(minimum, steps):
    """The wish to stop is granted after the step at hand, but not before min_steps and min_epochs."""
    trainer = quiet_trainer(max_epochs=5, callbacks=StopAt(3), **minimum)
    trainer.fit(Net(), loader())
    assert trainer.global_step == steps


def test_a_listener_may_skip_the_rest_of_an_epoch():
    """A module's on_train_batch_start that returns -1 ends the epoch before that batch."""

    class Skips(Net):
        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx == 2 else None

    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(Skips(), loader())
    assert trainer.global_step == 4
    assert trainer.current_epoch == 2


def test_a_sanity_check_of_minus_one_reads_all():
    """num_sanity_val_steps=-1 tries every validation batch before training."""
    module = Net()
    quiet_trainer(num_sanity_val_steps=-1).fit(module, loader(1), loader(5))
    assert module.calls[:6] == [*(("val", index) for index in range(5)), ("train", 0)]

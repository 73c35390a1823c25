"""Accumulation windows and limits, with loaders that know their length and such that do not."""

from __future__ import annotations

import warnings

import pytest
import torch
from support.reference import GLOBAL_BATCH, Case, Net, by_hand, dataset, furthest, make_trainer
from torch.utils.data import DataLoader, IterableDataset

from core import Callback
from core.errors import InterlockError, InvalidArgument


class Stream(IterableDataset):
    """The reference's samples one after another; says how many there are only if asked to, and then wrongly."""

    def __init__(self, batches, says=None):
        self.data = dataset(batches)
        if says is not None:
            self.__class__ = type("SayingStream", (Stream,), {"__len__": lambda self: says})

    def __iter__(self):
        yield from zip(*self.data.tensors, strict=True)


class Once:
    """An iterable without a length that makes its batches anew each time."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(DataLoader(dataset(self.batches), GLOBAL_BATCH))


class Counts(Callback):
    """Notes at which batch of which epoch each step came."""

    def __init__(self):
        self.steps, self._last = [], 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step != self._last:
            self._last = trainer.global_step
            self.steps.append((trainer.current_epoch, batch_idx))


def fit(loader, **arguments):
    """Train the reference net and return the module, where steps came, and the trainer."""
    counts = Counts()
    trainer = make_trainer(callbacks=counts, **{"max_epochs": 2, **arguments})
    module = Net("adam")
    trainer.fit(module, loader)
    return module, counts.steps, trainer


LOADERS = {
    "map": lambda batches: DataLoader(dataset(batches), GLOBAL_BATCH),
    "stream": lambda batches: DataLoader(Stream(batches), GLOBAL_BATCH),
    "guessed_length": lambda batches: DataLoader(Stream(batches, says=5), GLOBAL_BATCH),
    "iterable": Once,
    "list": lambda batches: list(DataLoader(dataset(batches), GLOBAL_BATCH)),
}


@pytest.mark.filterwarnings("ignore:accumulate_grad_batches", "ignore:Length of IterableDataset")
@pytest.mark.parametrize(("batches", "window"), [(10, 1), (10, 4), (8, 4), (3, 8), (1, 2)])
@pytest.mark.parametrize("kind", LOADERS)
def test_windows(kind, batches, window):
    """A step comes at the end of each window and of each epoch, and weights are those of the loop by hand."""
    module, steps, _ = fit(LOADERS[kind](batches), accumulate_grad_batches=window)
    ends = [index for index in range(batches) if index % window == window - 1 or index == batches - 1]
    assert steps == [(epoch, index) for epoch in range(2) for index in ends]
    assert furthest(module.state_dict(), by_hand(Case("adam", window, batches))) == 0


def test_window_longer_than_the_epoch():
    """A window longer than the epoch is told once, with both numbers; one that fits is not."""
    with pytest.warns(UserWarning, match="accumulate_grad_batches=8 is more than the 3 batches"):
        fit(LOADERS["map"](3), accumulate_grad_batches=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(LOADERS["map"](3), accumulate_grad_batches=3)


@pytest.mark.parametrize(("limit", "expected"), [(3, 3), (0.5, 5), (1.0, 10), (1, 1), (99, 10), (0.19, 1)])
def test_limited_batches(limit, expected):
    """limit_train_batches is a number of batches or a fraction of the loader; the last window ends there."""
    _, steps, trainer = fit(LOADERS["map"](10), limit_train_batches=limit, accumulate_grad_batches=expected + 1)
    assert steps == [(0, expected - 1), (1, expected - 1)]
    assert trainer.current_epoch == 2


@pytest.mark.parametrize("limit", [0, 0.0])
def test_no_batches(limit):
    """A limit of nothing trains nothing and ends."""
    module, steps, trainer = fit(LOADERS["map"](10), limit_train_batches=limit)
    assert steps == []
    assert trainer.global_step == 0
    assert furthest(module.state_dict(), Net("adam").state_dict()) == 0


def test_fraction_that_leaves_nothing():
    """A fraction that leaves no batch is refused, with both numbers and the least that leaves one."""
    with pytest.raises(InvalidArgument, match=r"limit_train_batches=0.01 leaves nothing of 10 batches; .* 0.1"):
        fit(LOADERS["map"](10), limit_train_batches=0.01)


@pytest.mark.parametrize("kind", ["stream", "iterable"])
def test_limits_without_a_length(kind):
    """Of a loader without a length a number of batches can be taken, and a fraction is refused with the reason."""
    _, steps, _ = fit(LOADERS[kind](10), limit_train_batches=5, accumulate_grad_batches=2)
    assert steps == [(epoch, index) for epoch in range(2) for index in (1, 3, 4)]
    with pytest.raises(InvalidArgument, match=r"limit_train_batches=0.5 is a fraction of a loader without a length"):
        fit(LOADERS[kind](10), limit_train_batches=0.5)


@pytest.mark.parametrize("kind", ["map", "stream"])
@pytest.mark.parametrize(
    ("window", "steps", "epoch", "batch"), [(1, 13, 1, 3), (4, 2, 0, 8), (4, 5, 1, 8), (4, 6, 2, 0)]
)
def test_max_steps(kind, window, steps, epoch, batch):
    """max_steps ends training at that step, in the middle of an epoch or at its end."""
    _, _, trainer = fit(LOADERS[kind](10), max_steps=steps, max_epochs=-1, accumulate_grad_batches=window)
    assert trainer.global_step == steps
    assert (trainer.progress.epoch, trainer.progress.batch) == (epoch, batch)


def test_schedule_of_epochs_with_max_steps():
    """An epoch that max_steps broke off does not move a schedule of epochs."""

    class Scheduled(Net):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=1e-3)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)]

    trainer = make_trainer(max_steps=15, max_epochs=-1)
    trainer.fit(Scheduled(), LOADERS["map"](10))
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-4)


def test_loader_that_ends_early():
    """A loader that has fewer batches than it says ends training with both numbers."""

    class Lying(list):
        def __len__(self):
            return 7

    with pytest.raises(InterlockError, match="says it has 7 batches, but it ended after 3"):
        fit(Lying(DataLoader(dataset(3), GLOBAL_BATCH)))


def test_second_fit_goes_on():
    """A second fit of the same Trainer goes on counting, and with nothing left to do it does nothing."""
    module, _, trainer = fit(LOADERS["map"](3))
    trainer.fit(module, LOADERS["map"](3))
    assert (trainer.current_epoch, trainer.global_step) == (2, 6)

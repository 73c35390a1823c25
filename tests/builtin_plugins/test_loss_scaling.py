"""Loss scaling: skipped steps, clipping of true gradients, and the scale itself."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from support.reference import GLOBAL_BATCH, Net, dataset, furthest, make_trainer
from torch import nn
from torch.utils.data import DataLoader

from builtin_plugins.fp16_mixed.precision import Float16MixedPrecision
from core import Callback

SCALE = 1024.0


class Overflowing(Net):
    """A net whose loss is infinite in the first batches; with schedules that go by step and by epoch."""

    def __init__(self, bad: int, kind: str = "sgd") -> None:
        super().__init__(kind)
        self.bad = bad

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss * math.inf if batch_idx < self.bad else loss

    def configure_optimizers(self):
        configured = super().configure_optimizers()
        optimizers = configured if isinstance(configured, list) else [configured]
        schedules = [
            {"scheduler": torch.optim.lr_scheduler.StepLR(optimizers[0], 1, gamma=0.5), "interval": interval}
            for interval in ("step", "epoch")
        ]
        return optimizers, schedules


class Watch(Callback):
    """Notes weights, rate and scale after each batch."""

    def __init__(self) -> None:
        self.weights, self.rates, self.scales, self.skipped = [], [], [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.weights.append({name: value.clone() for name, value in module.state_dict().items()})
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        self.scales.append(trainer._run.plugins["precision"].scaler.get_scale())
        self.skipped.append(trainer.skipped_steps)


class Gradients(Callback):
    """Notes the gradients that each optimizer steps with."""

    def __init__(self) -> None:
        self.norms, self.largest = [], []

    def on_train_start(self, trainer, module):
        for optimizer in trainer.optimizers:
            optimizer.step = self._noting(optimizer, optimizer.step)

    def _noting(self, optimizer, step):
        def call(*arguments):
            flat = torch.cat([p.grad.flatten() for g in optimizer.param_groups for p in g["params"]])
            self.norms.append(float(flat.norm()))
            self.largest.append(float(flat.abs().max()))
            return step(*arguments)

        return call


def fit(module, callback, batches=5, **arguments):
    """Train one epoch in float16 and return the trainer."""
    arguments.setdefault("precision", Float16MixedPrecision(init_scale=SCALE))
    trainer = make_trainer(callbacks=callback, max_epochs=1, **arguments)
    trainer.fit(module, DataLoader(dataset(batches), batch_size=GLOBAL_BATCH))
    return trainer


@pytest.mark.parametrize("kind", ["sgd", "two"])
def test_skipped_steps(kind):
    """Two infinite losses: both steps are skipped and counted, nothing moves, the scale halves, torch is quiet."""
    watch = Watch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer = fit(Overflowing(2, kind), watch)
    assert furthest(watch.weights[1], Overflowing(2, kind).state_dict()) == 0
    assert furthest(watch.weights[2], watch.weights[1]) > 0
    # the last batch of the epoch moves the schedule of epochs, too
    assert watch.rates == [0.05, 0.05, 0.025, 0.0125, 0.003125]
    assert watch.scales == [SCALE / 2, SCALE / 4, SCALE / 4, SCALE / 4, SCALE / 4]
    assert watch.skipped == [1, 2, 2, 2, 2]
    assert (trainer.skipped_steps, trainer.global_step) == (2, 5)


def test_epoch_of_skipped_steps():
    """Where every step of an epoch is skipped, no schedule moves, not even the one of epochs."""
    watch = Watch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer = fit(Overflowing(5), watch)
    assert trainer.skipped_steps == trainer.global_step == 5
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.05


def test_schedule_of_epochs():
    """A schedule of epochs moves once in an epoch in which some step was taken."""
    trainer = fit(Overflowing(4), Watch())
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.05 * 0.5 * 0.5)


def test_max_steps_counts_skipped_ones():
    """max_steps is reached although steps are skipped, so that a run of overflows ends."""
    trainer = fit(Overflowing(5), Watch(), max_steps=3)
    assert (trainer.global_step, trainer.skipped_steps) == (3, 3)


@pytest.mark.parametrize("window", [1, 2])
def test_clipped_by_norm(window):
    """The gradients that an optimizer steps with have the norm of gradient_clip_val, whatever the loss scale."""
    gradients = Gradients()
    fit(Net("two"), gradients, gradient_clip_val=1e-3, accumulate_grad_batches=window)
    assert gradients.norms == pytest.approx([1e-3] * len(gradients.norms), rel=1e-2)
    assert max(gradients.norms) <= 1e-3 * (1 + 1e-6)


def test_clipped_by_value():
    """No gradient that an optimizer steps with is larger than gradient_clip_val."""
    gradients = Gradients()
    fit(Net("two"), gradients, gradient_clip_val=1e-4, gradient_clip_algorithm="value")
    assert gradients.largest == pytest.approx([1e-4] * len(gradients.largest))


def test_same_step_as_float32():
    """Unscaled and clipped, a step of plain descent moves the weights as one in float32 does, within 1e-4."""
    moved = []
    for precision in (Float16MixedPrecision(init_scale=SCALE), "32-true"):
        module = Net("sgd")
        fit(module, [], batches=1, gradient_clip_val=1.0, precision=precision)
        moved.append(module.state_dict())
    assert furthest(*moved) < 1e-4


class Unused(Net):
    """Configures an optimizer whose parameters the loss does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 3)

    def configure_optimizers(self):
        return [torch.optim.SGD(self.first.parameters(), lr=0.1), torch.optim.SGD(self.unused.parameters(), lr=0.1)]


def test_optimizer_without_gradients():
    """An optimizer whose parameters got no gradient does not stop the others."""
    module = Unused()
    trainer = fit(module, [])
    assert trainer.skipped_steps == 0
    assert furthest(module.first.state_dict(), Unused().first.state_dict()) > 0


class Lossless(Net):
    """Has no loss for some batches."""

    without = (0, 2, 3)

    def training_step(self, batch, batch_idx):
        return None if batch_idx in self.without else super().training_step(batch, batch_idx)


class OwnStep(Lossless):
    """The same, with an optimizer_step of its own."""

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        optimizer.step(closure=optimizer_closure)


@pytest.mark.parametrize("precision", ["16-mixed", "32-true"])
@pytest.mark.parametrize("kind", [Lossless, OwnStep])
@pytest.mark.parametrize(("window", "taken", "skipped"), [(1, 3, 3), (2, 2, 1)])
def test_windows_without_a_loss(precision, kind, window, taken, skipped):
    """A window of which no batch has a loss is skipped and counted; the first one too, before anything was scaled."""
    module = kind("adam")
    trainer = fit(module, [], batches=6, precision=precision, accumulate_grad_batches=window)
    assert (trainer.global_step, trainer.skipped_steps) == (taken + skipped, skipped)
    steps = {int(state["step"]) for state in trainer.optimizers[0].state.values()}
    assert steps == {taken}


def test_scale_grows():
    """After growth_interval good steps the scale doubles."""
    watch = Watch()
    fit(Net(), watch, precision=Float16MixedPrecision(init_scale=8.0, growth_interval=2))
    assert watch.scales == [8, 16, 16, 32, 32]


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "16-true", "32-true", "64-true"])
def test_no_scaler_elsewhere(precision):
    """No other precision has a scaler, or a state in the checkpoint."""
    trainer = fit(Net(), [], precision=precision, batches=1)
    plugin = trainer._run.plugins["precision"]
    assert not hasattr(plugin, "scaler")
    assert plugin.state_dict() == {}

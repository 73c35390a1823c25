"""Evaluation changes nothing, and its means are exact."""

from __future__ import annotations

import pytest
import torch
from support.reference import make_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Callback, Module

GENERATOR = torch.Generator().manual_seed(4)
FEATURES, TARGETS = torch.randn(23, 3, generator=GENERATOR), torch.randn(23, 1, generator=GENERATOR)
DATA = TensorDataset(FEATURES, TARGETS)


class Net(Module):
    """Batch norm and dropout, and a part that its owner keeps in eval mode."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.frozen = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
        self.body = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
        self.notes = []

    def loss(self, batch):
        features, target = batch
        return nn.functional.mse_loss(self.body(self.frozen(features)), target)

    def on_train_epoch_start(self):
        self.frozen.eval()

    def training_step(self, batch, batch_idx):
        self.notes.append(("train", [part.training for part in self.modules()], torch.is_grad_enabled()))
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.notes.append(("eval", [part.training for part in self.modules()], loss.requires_grad))
        self.log("val_loss", loss)
        self.log("largest", batch[0].max(), reduce_fx="max")
        self.log("smallest", batch[0].min(), reduce_fx="min")
        self.log("count", len(batch[0]), reduce_fx="sum")
        self.log("weighted", loss, batch_size=1)

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def loader(size=4):
    """23 samples: the last batch is smaller than the others."""
    return DataLoader(DATA, batch_size=size)


def exact(module):
    """Return the loss over all samples at once, in double precision."""
    module = module.eval().double()
    with torch.no_grad():
        return module.loss((FEATURES.double(), TARGETS.double())).item()


@pytest.mark.parametrize("inference_mode", [True, False])
def test_modes(inference_mode):
    """Steps of validation run in eval mode without gradients; afterwards each part is in the mode it had before."""
    module = Net()
    trainer = make_trainer(max_epochs=2, inference_mode=inference_mode)
    trainer.fit(module, loader(), loader())
    training = {tuple(modes) for kind, modes, _ in module.notes if kind == "train"}
    frozen = [name.startswith("frozen") for name, _ in module.named_modules()]
    assert training == {tuple(not is_frozen for is_frozen in frozen)}
    evaluating = [(modes, grads) for kind, modes, grads in module.notes if kind == "eval"]
    assert evaluating
    assert all(not any(modes) and not grads for modes, grads in evaluating)
    assert all(grads for kind, _, grads in module.notes if kind == "train")


@pytest.mark.parametrize("call", ["validate", "test"])
def test_modes_alone(call):
    """Evaluation alone leaves modes, weights, buffers and random numbers of the module's next user as they were."""
    module = Net()
    module.body[1].eval()
    modes = [part.training for part in module.modules()]
    state = {name: value.clone() for name, value in module.state_dict().items()}
    getattr(make_trainer(), call)(module, loader(), verbose=False)
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_modes_after_an_error():
    """When a step of validation raises, modes and gradients are as before."""

    class Failing(Net):
        def validation_step(self, batch, batch_idx):
            raise ZeroDivisionError

    module = Failing()
    trainer = make_trainer()
    with pytest.raises(ZeroDivisionError):
        trainer.validate(module, loader(), verbose=False)
    assert all(part.training for part in module.modules())
    assert torch.is_grad_enabled()
    assert not trainer.validating


@pytest.mark.parametrize("size", [4, 7, 22, 23])
@pytest.mark.parametrize("call", ["validate", "test"])
def test_exact_mean(call, size):
    """The mean over an epoch is that over all samples, however uneven the last batch, within 1e-6."""
    module = Net()
    (metrics,) = getattr(make_trainer(), call)(module, loader(size), verbose=False)
    assert metrics["val_loss"] == pytest.approx(exact(module), rel=1e-6)


def test_reductions():
    """Values are brought together as they ask for, and batch_size is their weight in a mean."""
    module = Net()
    (metrics,) = make_trainer().validate(module, loader(7), verbose=False)
    assert metrics["largest"] == FEATURES.max().item()
    assert metrics["smallest"] == FEATURES.min().item()
    assert metrics["count"] == 23
    module.eval()
    losses = [module.loss(batch).item() for batch in loader(7)]
    assert metrics["weighted"] == pytest.approx(sum(losses) / len(losses), rel=1e-6)


@pytest.mark.parametrize("precision", ["bf16-true", "16-true"])
def test_mean_of_many_in_16_bits(precision):
    """A mean over many values of 16 bits keeps the small ones."""

    class Constant(Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def validation_step(self, batch, batch_idx):
            self.log("value", self.weight * batch.mean())
            self.log("number", 0.1)
            self.log("size", 40_000)

    data = torch.ones(3000, 2)
    (metrics,) = make_trainer(precision=precision).validate(Constant(), DataLoader(data, 2), verbose=False)
    assert metrics["value"] == pytest.approx(1.0, rel=1e-6)
    assert metrics["number"] == pytest.approx(0.1, rel=1e-12)
    assert metrics["size"] == 40_000


def test_training_mean():
    """A value of training logged with on_epoch is the mean over the epoch, beside the last step's."""

    class Logs(Net):
        def training_step(self, batch, batch_idx):
            self.log("place", float(batch_idx), on_step=True, on_epoch=True)
            return super().training_step(batch, batch_idx)

    trainer = make_trainer(max_epochs=2)
    trainer.fit(Logs(), loader(5))
    sizes = [5, 5, 5, 5, 3]
    assert trainer.callback_metrics["place_epoch"].item() == pytest.approx(
        sum(size * place for place, size in enumerate(sizes)) / 23
    )
    assert trainer.callback_metrics["place_step"].item() == 4


@pytest.mark.parametrize(("limit", "expected"), [(2, 8), (0.5, 12), (1.0, 23), (99, 23)])
def test_limited(limit, expected):
    """limit_val_batches is a number of batches or a fraction of the loader."""
    (metrics,) = make_trainer(limit_val_batches=limit).validate(Net(), loader(), verbose=False)
    assert metrics["count"] == expected


@pytest.mark.parametrize(("every", "expected"), [(1, [0, 1, 2, 3, 4]), (2, [1, 3]), (5, [4]), (6, [])])
def test_every_n_epochs(every, expected):
    """check_val_every_n_epoch=n validates at the end of each n-th epoch."""
    epochs = []

    class Note(Callback):
        def on_validation_epoch_start(self, trainer, module):
            epochs.append(trainer.current_epoch)

    trainer = make_trainer(max_epochs=5, check_val_every_n_epoch=every, callbacks=Note(), num_sanity_val_steps=0)
    trainer.fit(Net(), loader(), loader())
    assert epochs == expected


def test_order_of_values_does_not_matter_to_training():
    """Training with validation gives the weights of training without, where validation draws no random numbers."""
    with_validation, without = Net(), Net()
    for module, validation in ((with_validation, loader()), (without, None)):
        torch.manual_seed(1)
        module.body[1].p = module.frozen[1].p = 0.0
        make_trainer(max_epochs=2).fit(module, loader(), validation)
    for ours, theirs in zip(with_validation.parameters(), without.parameters(), strict=True):
        assert torch.equal(ours, theirs)


class Caches(Module):
    """Makes a table when it first needs one, and multiplies by it."""

    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(3, 3), None

    def training_step(self, batch, batch_idx):
        if self.table is None:
            self.table = torch.linspace(0, 1, 3) * 1.0
        return (self.layer(batch) * self.table).pow(2).mean()

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def test_what_validation_keeps_may_take_part_in_training():
    """A tensor that a module made in validation, as caches are, can be used in a step of training afterwards."""
    rows = DataLoader(torch.ones(4, 3), batch_size=2)
    trainer = make_trainer(max_epochs=1)
    trainer.fit(Caches(), rows, rows)  # the sanity check comes first
    assert trainer.global_step == 2
    module = Caches()
    trainer.validate(module, rows, verbose=False)
    assert module.table.is_inference()


def test_parts_that_were_put_in_eval_mode_stay_in_it():
    """What on_fit_start, or whoever made the module, put in eval mode trains in it, and that is said once."""

    class Frozen(Caches):
        def on_fit_start(self):
            self.layer.eval()

        def training_step(self, batch, batch_idx):
            self.modes = self.training, self.layer.training
            return super().training_step(batch, batch_idx)

    module = Frozen()
    with pytest.warns(
        UserWarning, match="training begins with 1 parts in eval mode, such as layer, and they stay in it"
    ):
        make_trainer(max_epochs=1).fit(module, DataLoader(torch.ones(4, 3), batch_size=2))
    assert module.modes == (True, False)

"""Optimizers that evaluate the loss several times in a step."""

from __future__ import annotations

import pytest
import torch
from support.reference import make_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Module
from core.errors import InvalidCombination

GENERATOR = torch.Generator().manual_seed(6)
X, Y = torch.randn(24, 4, generator=GENERATOR), torch.randn(24, 1, generator=GENERATOR)
BATCH = 8


class Quadratic(Module):
    """A linear regression that counts how often its loss was evaluated."""

    def __init__(self, **settings):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 1)
        self.settings = settings
        self.evaluations, self.losses = 0, []

    def training_step(self, batch, batch_idx):
        self.evaluations += 1
        loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.5, max_iter=5, **self.settings)


def loader():
    return DataLoader(TensorDataset(X, Y), BATCH)


@pytest.mark.parametrize("settings", [{}, {"line_search_fn": "strong_wolfe"}, {"history_size": 2}])
@pytest.mark.parametrize(("precision", "dtype"), [("32-true", torch.float32), ("64-true", torch.float64)])
def test_equals_torch(settings, precision, dtype):
    """LBFGS evaluates as often as in a plain loop, with the same losses, and ends at the same weights."""
    module = Quadratic(**settings)
    trainer = make_trainer(precision=precision, max_epochs=3)
    trainer.fit(module, loader())
    by_hand = Quadratic(**settings).to(dtype)
    optimizer = by_hand.configure_optimizers()
    for _ in range(3):
        for batch in loader():
            batch = [tensor.to(dtype) for tensor in batch]

            def closure(batch=batch):
                optimizer.zero_grad()
                loss = by_hand.training_step(batch, 0)
                loss.backward()
                return loss

            optimizer.step(closure)
    assert module.evaluations == by_hand.evaluations > 9
    assert module.losses == by_hand.losses
    assert torch.equal(module.layer.weight, by_hand.layer.weight)
    assert trainer.global_step == 9


def test_bfloat16():
    """LBFGS trains under autocast to bfloat16."""
    module = Quadratic()
    make_trainer(precision="bf16-mixed", max_epochs=3).fit(module, loader())
    assert min(module.losses[-5:]) < module.losses[0]


def test_clipped():
    """With clipping every evaluation gives the optimizer gradients of that norm at most."""
    norms = []

    class Noting(torch.optim.LBFGS):
        def _gather_flat_grad(self):
            flat = super()._gather_flat_grad()
            norms.append(flat.norm().item())
            return flat

    class Clipped(Quadratic):
        def configure_optimizers(self):
            return Noting(self.parameters(), lr=0.5, max_iter=5)

    make_trainer(max_epochs=1, gradient_clip_val=0.1).fit(Clipped(), loader())
    assert len(norms) > 3
    assert max(norms) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"precision": "16-mixed"}, "precision '16-mixed'"),
        ({"accumulate_grad_batches": 2}, "LBFGS evaluates one batch again and again; it has no window"),
        ({"strategy": "ddp_sharded"}, "strategy 'ddp_sharded'"),
    ],
)
def test_refused(arguments, words):
    """With loss scaling, windows or sharded state LBFGS is refused before the first step, with the reason."""
    module = Quadratic()
    trainer = make_trainer(max_epochs=1, **arguments)
    with pytest.raises(InvalidCombination) as caught:
        trainer.fit(module, loader())
    assert words in str(caught.value)
    assert "reason:" in str(caught.value)
    assert module.evaluations == 0


@pytest.mark.parametrize("kind", ["lbfgs", "own"])
def test_who_needs_a_closure(kind):
    """An optimizer counts as one that needs a closure by its step's signature, whoever wrote it."""

    class Own(torch.optim.SGD):
        def step(self, closure):
            for _ in range(2):
                with torch.enable_grad():
                    loss = closure()
                super().step()
            return loss

    class Twice(Quadratic):
        def configure_optimizers(self):
            return Own(self.parameters(), lr=0.1) if kind == "own" else super().configure_optimizers()

    module = Twice()
    make_trainer(max_epochs=1).fit(module, loader())
    assert module.evaluations >= 6

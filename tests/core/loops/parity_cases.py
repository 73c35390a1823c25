"""The cases in which every strategy has to equal the loop by hand, and the script that trains them on several ranks."""

from __future__ import annotations

import sys
from itertools import product

import torch
from support.reference import Case, dataset, make_trainer, with_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Module

WINDOWS = [(1, 10), (4, 10), (8, 3)]
"""Micro-batches of a window, batches of an epoch: none, a shorter last window, an epoch shorter than the window."""
OPTIMIZERS = ["sgd", "adam", "adamw", "two", "groups"]
CLIPS = [(None, "norm"), (0.5, "norm"), (0.05, "value")]
PRECISIONS = ["16-mixed", "bf16-mixed", "64-true", "bf16-true", "16-true"]

FULL = [
    Case(optimizers, *window, clip, algorithm)
    for optimizers, window, (clip, algorithm) in product(OPTIMIZERS, WINDOWS, CLIPS)
]
SHORT = [
    *(Case(optimizers, *window, 0.5, "norm") for optimizers, window in product(OPTIMIZERS, WINDOWS)),
    *(Case("two", *window, clip, by) for window, (clip, by) in product(WINDOWS, [CLIPS[0], CLIPS[2]])),
]
IN_OTHER_PRECISIONS = [
    Case(optimizers, 4, 10, 0.5, "norm", precision)
    for optimizers, precision in product(["sgd", "two"], PRECISIONS)
    if (optimizers, precision) != ("two", "16-true")  # the epsilon of AdamW is 0 in float16
]
SPAWNED = [
    Case("sgd", 1, 10, 0.05, "value"),
    Case("two", 4, 10, 0.5, "norm"),
    Case("groups", 8, 3, None, "norm"),
    Case("two", 4, 10, 0.5, "norm", "16-mixed"),
]
TOLERANCE = {
    "32-true": 1e-6,
    "64-true": 1e-12,
    # two halves of a batch are rounded apart from the whole; weights are of size 0.4
    "16-mixed": 2e-4,
    "bf16-mixed": 2e-3,
    # the weights themselves have 11 and 8 bits
    "16-true": 2e-3,
    "bf16-true": 1e-2,
}


class Noisy(Module):
    """A model with batch norm and dropout: parameters that depend on the mode, on random numbers and on buffers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
        self.losses: list[float] = []

    def training_step(self, batch, batch_idx):
        features, target = batch
        loss = nn.functional.mse_loss(self.body(features), target)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def train_noisy(strategy: str, devices: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train :class:`Noisy` on something that can be learned; return this rank's losses and the weights."""
    features = dataset(40).tensors[0]
    data = TensorDataset(features, features[:, :2] - features[:, 2:4])
    trainer = make_trainer(strategy=strategy, devices=devices, max_epochs=10, accumulate_grad_batches=2)
    module = Noisy()
    trainer.fit(module, DataLoader(data, batch_size=32 // devices, shuffle=True))
    trainer.end_run()
    return module.losses, dict(module.state_dict())


def main(strategy: str, output: str) -> None:
    """Train every case as rank so-and-so and let rank 0 write what came out."""
    found = {str(case): with_trainer(case, strategy, 2) for case in [*SHORT, *IN_OTHER_PRECISIONS]}
    losses, weights = train_noisy(strategy, 2)
    rank = make_trainer().global_rank
    torch.save({"cases": found, "losses": losses, "weights": weights}, f"{output}.{rank}")


if __name__ == "__main__":
    main(*sys.argv[1:])

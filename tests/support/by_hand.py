"""Modules that optimize by themselves, in the ways in which people do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, TensorDataset

from core import Module

KINDS = ("toggled", "accumulated", "kept_back")


class Gan(Module):
    """Two nets and two optimizers; ``kind`` names the method that is its step."""

    automatic_optimization = False

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.generator, self.critic = kind, nn.Linear(4, 4), nn.Linear(4, 1)

    def losses(self, rows: Tensor) -> Iterator[Tensor]:
        """Return the loss of each net, a mean over samples."""
        yield (self.critic(self.generator(rows)) - 1).square().mean()
        yield self.critic(self.generator(rows).detach()).square().mean() - self.critic(rows).mean()

    def configure_optimizers(self) -> list[Optimizer]:
        return [SGD(part.parameters(), 0.1) for part in (self.generator, self.critic)]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        getattr(self, self.kind)(batch[0], self.optimizers(), batch_idx % 2 == 1)

    def toggled(self, rows: Tensor, optimizers: Sequence[Any], ends: bool) -> None:
        """Step one net after the other, the other one's parameters frozen."""
        for place, optimizer in enumerate(optimizers):
            with optimizer.toggle_model():
                loss = list(self.losses(rows))[place]
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()

    def accumulated(self, rows: Tensor, optimizers: Sequence[Any], ends: bool) -> None:
        """Sum the gradients of four backward passes in two batches."""
        for loss in self.losses(rows):
            self.manual_backward(loss)
        if ends:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    def kept_back(self, rows: Tensor, optimizers: Sequence[Any], ends: bool) -> None:
        """Sum the gradients of two batches, and exchange them with the second only."""
        with optimizers[0].toggle_model(sync_grad=ends):
            self.manual_backward(next(self.losses(rows)))
        if ends:
            optimizers[0].step()
            optimizers[0].zero_grad()

    def past(self, rows: Tensor, optimizers: Sequence[Any], ends: bool) -> None:
        """Run backward without the plugins."""
        next(self.losses(rows)).backward()  # type: ignore[no-untyped-call]
        optimizers[0].step()


def loader(batch_size: int) -> DataLoader[Any]:
    """Return 32 samples, in order."""
    return DataLoader(TensorDataset(torch.randn(32, 4, generator=torch.Generator().manual_seed(1))), batch_size)

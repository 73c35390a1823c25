"""The smallest module, data and Trainer: for scripts about processes, in which only the processes matter."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Module, Trainer


class Tiny(Module):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.layer(batch[0]).square().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(samples: int = 40, workers: int = 0) -> DataLoader[Any]:
    """Return batches of four samples."""
    rows = TensorDataset(torch.randn(samples, 4, generator=torch.Generator().manual_seed(1)))
    return DataLoader(rows, batch_size=4, num_workers=workers)


def trainer(strategy: str | object, devices: int = 2, **settings: Any) -> Trainer:
    """Return a Trainer that trains one epoch and writes nothing."""
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    given = {**dict.fromkeys(quiet, False), "max_epochs": 1, **settings}
    return Trainer(accelerator="cpu", strategy=strategy, devices=devices, **given)

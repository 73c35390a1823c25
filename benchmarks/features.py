"""Training steps with one feature on: by hand, and with Interlock.

What is logged is one tensor under many names, and callbacks count, so that the cost of the feature itself shows.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from timing import Clock
from torch import nn
from torch.utils.data import DataLoader

from core import Callback, CSVLogger, Module, Trainer

LOG_EVERY = 50


@dataclass(frozen=True)
class Feature:
    """What a loop has to do beside training."""

    title: str
    metrics: int = 0
    """Values that are logged in each step; every 50 steps the newest go to a CSV file."""
    callbacks: int = 0
    """Objects that are told of the start and the end of each batch."""
    accumulate: int = 1
    half: bool = False
    """Whether the forward runs under autocast to float16, with a scaled loss."""

    @property
    def names(self) -> list[str]:
        return [f"metric_{number}" for number in range(self.metrics)]


FEATURES = (
    Feature("100 metrics", metrics=100),
    Feature("5 callbacks", callbacks=5),
    Feature("accumulation of 4", accumulate=4),
    Feature("16-mixed", half=True),
)


def make_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def make_optimizer(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.01)


class Counting:
    """Is told of every batch."""

    def __init__(self) -> None:
        self.started = self.ended = 0

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        self.started += 1

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.ended += 1


class Rows:
    """Writes rows of metrics to a CSV file."""

    def __init__(self, folder: str, names: Sequence[str]) -> None:
        self._file = open(Path(folder, "metrics.csv"), "w", newline="")  # noqa: SIM115  # closed by `close`
        self._writer = csv.DictWriter(self._file, [*names, "step"])
        self._writer.writeheader()

    def write(self, metrics: dict[str, Any], step: int) -> None:
        self._writer.writerow({**{name: float(value) for name, value in metrics.items()}, "step": step})

    def close(self) -> None:
        self._file.close()


def by_hand(clock: Clock, loader: DataLoader, feature: Feature) -> None:
    """Run the loop that a person writes for the feature, and nothing beside it."""
    net = make_net()
    optimizer = make_optimizer(net)
    callbacks = [Counting() for _ in range(feature.callbacks)]
    scaler = torch.amp.GradScaler("cpu", enabled=feature.half)
    context = torch.autocast("cpu", torch.float16) if feature.half else nullcontext()
    names, window, total = feature.names, feature.accumulate, len(loader)
    logged: dict[str, torch.Tensor] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = Rows(folder, names)
        for index, batch in enumerate(loader):
            for callback in callbacks:
                callback.on_train_batch_start(None, net, batch, index)
            clock.tick()
            x, y = batch
            if feature.half:
                with context:
                    loss = nn.functional.cross_entropy(net(x), y)
            else:
                loss = nn.functional.cross_entropy(net(x), y)
            for name in names:
                logged[name] = loss.detach()
            if window > 1:
                loss = loss / window
            if feature.half:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            else:
                loss.backward()
                if (index + 1) % window == 0 or index + 1 == total:
                    optimizer.step()
                    optimizer.zero_grad()
            if names and (index + 1) % LOG_EVERY == 0:
                rows.write(logged, index + 1)
            for callback in callbacks:
                callback.on_train_batch_end(None, net, loss, batch, index)
        rows.close()


class CountingOurs(Counting, Callback):
    """The same as a callback of ours."""


class Ours(Module):
    """Logs by ``self.log``; the peers take its methods."""

    def __init__(self, clock: Clock, names: Sequence[str]) -> None:
        super().__init__()
        self.net, self.clock, self.names = make_net(), clock, names

    def training_step(self, batch, batch_idx):
        self.clock.tick()
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        for name in self.names:
            self.log(name, loss)
        return loss

    def configure_optimizers(self):
        return make_optimizer(self)


def interlock(clock: Clock, loader: DataLoader, feature: Feature) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            accelerator="cpu",
            precision="16-mixed" if feature.half else "32-true",
            max_epochs=1,
            accumulate_grad_batches=feature.accumulate,
            logger=CSVLogger(folder) if feature.metrics else False,
            log_every_n_steps=LOG_EVERY,
            callbacks=[CountingOurs() for _ in range(feature.callbacks)],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        ).fit(Ours(clock, feature.names), loader)

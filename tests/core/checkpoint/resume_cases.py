"""Trainings that write a checkpoint on their way, and the script that goes on from it in a new process."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.reference import make_trainer
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from builtin_plugins.fp16_mixed.precision import Float16MixedPrecision
from core import Callback, Module

SAMPLES, BATCH = 48, 4
EPOCHS = 3


@dataclass(frozen=True)
class Scenario:
    """One training and the point at which its checkpoint is written."""

    name: str
    point: str = "batch"
    """The hook: ``"batch"`` (the end of one), ``"epoch"`` (its end) or ``"validation"`` (its end)."""
    epoch: int = 1
    batch: int = 5
    """Batches of the epoch that are done."""
    data: str = "augmented"
    workers: int = 0
    optimizers: str = "adam"
    trainer: dict[str, Any] = field(default_factory=dict)
    validated: bool = False


SCENARIOS = [
    Scenario("epoch_end", "epoch"),
    Scenario("mid_epoch"),
    Scenario("first_batch", epoch=0, batch=1),
    Scenario("workers", workers=1),
    Scenario("tensors", data="tensors"),
    Scenario("own_generator", data="generator"),
    Scenario("weighted", data="weighted"),
    Scenario("python_sampler", data="python_sampler"),
    Scenario("two_optimizers", optimizers="two"),
    Scenario("schedule_per_step", optimizers="per_step"),
    Scenario("schedule_per_epoch", optimizers="per_epoch"),
    Scenario("plateau", optimizers="plateau", validated=True),
    Scenario("plateau_last_batch", optimizers="plateau", validated=True, epoch=1, batch=12),
    Scenario("last_batch", optimizers="per_epoch", epoch=0, batch=12),
    Scenario("in_validation", "validation", optimizers="plateau", validated=True),
    Scenario("float16", trainer={"precision": "16-mixed"}),
    Scenario("window", trainer={"accumulate_grad_batches": 4}, batch=8),
    Scenario("inside_window", trainer={"accumulate_grad_batches": 4}, batch=6),
    Scenario("inside_last_window", trainer={"accumulate_grad_batches": 5}, batch=11),
    Scenario("keeps_position", data="keeps_position"),
    Scenario("torchdata", data="torchdata"),
    Scenario("torchdata_workers", data="torchdata", workers=2),
    Scenario("stream", data="stream"),
    Scenario("stream_inside_window", data="stream", trainer={"accumulate_grad_batches": 4}, batch=6),
]
ON_TWO_RANKS = [
    "epoch_end",
    "mid_epoch",
    "workers",
    "schedule_per_step",
    "plateau_last_batch",
    "float16",
    "window",
    "inside_window",
]


class Augmented(Dataset[Any]):
    """Samples that look different each time, by the random numbers of three libraries."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        x = torch.linspace(-1, 1, 6) * (index / SAMPLES)
        noise = torch.rand(6) + random.random() + float(np.random.rand())
        return index, x + 0.1 * noise, x[:1].abs()


class Stream(IterableDataset[Any]):
    """The samples of a rank, one after another; their number is not known beforehand."""

    def __iter__(self) -> Any:
        for index in range(SAMPLES):
            x = torch.linspace(-1, 1, 6) * (index / SAMPLES)
            yield index, x, x[:1].abs()


class PythonSampler(torch.utils.data.Sampler[int]):
    """An order drawn by Python's random numbers."""

    def __iter__(self) -> Any:
        order = list(range(SAMPLES))
        random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return SAMPLES


class KeepsPosition:
    """A loader of another package: it draws its order by itself, and has its position as state, as torchdata's has."""

    def __init__(self, size: int) -> None:
        self.size, self.generator = size, random.Random(3)
        self.done = self.first = 0
        self.began: Any = self.generator.getstate()

    def __len__(self) -> int:
        return SAMPLES // self.size

    def __iter__(self) -> Any:
        order = list(range(SAMPLES))
        self.began = self.generator.getstate()
        self.generator.shuffle(order)
        self.done, self.first = self.first, 0
        for number in range(self.done, len(self)):
            index = torch.tensor(order[number * self.size : (number + 1) * self.size])
            x = torch.linspace(-1, 1, 6) * (index[:, None] / SAMPLES)
            self.done = number + 1
            yield index, x, x[:, :1].abs()

    def state_dict(self) -> dict[str, Any]:
        version, numbers, gauss = self.began
        return {"done": self.done, "began": [version, list(numbers), gauss]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        version, numbers, gauss = state["began"]
        self.generator.setstate((version, tuple(numbers), gauss))
        self.first = state["done"]


def loader_for(scenario: Scenario, size: int) -> Any:
    """Return the loader; random orders wherever the data has an order to draw."""
    data = scenario.data
    if data == "stream":
        return DataLoader(Stream(), batch_size=size)
    if data == "keeps_position":
        return KeepsPosition(size)
    if data in ("tensors", "torchdata"):
        x = torch.linspace(-1, 1, 6) * (torch.arange(SAMPLES)[:, None] / SAMPLES)
        samples = TensorDataset(torch.arange(SAMPLES), x, x[:, :1].abs())
        if data == "torchdata":
            torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
            return torchdata.StatefulDataLoader(samples, size, shuffle=True, num_workers=scenario.workers)
        return DataLoader(samples, size, shuffle=True)
    how: dict[str, Any] = {"shuffle": True}
    if data == "generator":
        how["generator"] = torch.Generator().manual_seed(17)
    elif data == "weighted":
        how = {"sampler": WeightedRandomSampler(torch.arange(1.0, SAMPLES + 1).tolist(), SAMPLES)}
    elif data == "python_sampler":
        how = {"sampler": PythonSampler()}
    return DataLoader(Augmented(), size, num_workers=scenario.workers, **how)


class Learner(Module):
    """A network with dropout that keeps what it saw and lost."""

    def __init__(self, optimizers: str) -> None:
        super().__init__()
        self.kind = optimizers
        self.first = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.ReLU())
        self.second = nn.Linear(8, 1)
        self.seen: list[list[int]] = []
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        index, x, y = batch
        loss = nn.functional.mse_loss(self.second(self.first(x)), y)
        self.seen.append(index.tolist())
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        _, x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.second(self.first(x)), y), sync_dist=True)

    def configure_optimizers(self) -> Any:
        if self.kind == "two":
            sgd = torch.optim.SGD(self.second.parameters(), lr=0.05, momentum=0.9)
            return [torch.optim.Adam(self.first.parameters(), lr=0.02), sgd]
        adam = torch.optim.Adam(self.parameters(), lr=0.02)
        if self.kind == "per_step":
            schedule = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=0.05, total_steps=200)
            return {"optimizer": adam, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
        if self.kind == "per_epoch":
            return [adam], [torch.optim.lr_scheduler.StepLR(adam, 1, gamma=0.5)]
        if self.kind == "plateau":
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(adam, factor=0.5, patience=0, threshold=10.0)
            return {"optimizer": adam, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}
        return adam


class SaveAt(Callback):
    """Writes one checkpoint at the point of a scenario."""

    def __init__(self, scenario: Scenario, path: Path) -> None:
        self.scenario, self.path = scenario, path

    def _save(self, trainer: Any, point: str) -> None:
        wanted, progress = self.scenario, trainer.progress
        in_place = point != "batch" or progress.batch == wanted.batch
        if in_place and (point, progress.epoch) == (wanted.point, wanted.epoch):
            trainer.save_checkpoint(self.path)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self._save(trainer, "batch")

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        self._save(trainer, "epoch")

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        self._save(trainer, "validation")


def train(
    scenario: Scenario, folder: Path, strategy: str, devices: int, *, resume: bool, start: Path | None = None
) -> dict[str, Any]:
    """Train a scenario, from its checkpoint on or from the start, and return what can be compared.

    With ``start`` it goes on from that file and writes its own on the way.
    """
    torch.manual_seed(99 if resume else 7)
    random.seed(99 if resume else 7)
    np.random.seed(99 if resume else 7)
    path = folder / f"{scenario.name}-{strategy}.ckpt"
    settings = {**scenario.trainer, "num_sanity_val_steps": 0}
    if settings.get("precision") == "16-mixed":
        settings["precision"] = Float16MixedPrecision(init_scale=64.0, growth_interval=7)
    callbacks = [] if resume else [SaveAt(scenario, path)]
    trainer = make_trainer(strategy=strategy, devices=devices, max_epochs=EPOCHS, callbacks=callbacks, **settings)
    module, size = Learner(scenario.optimizers), BATCH // devices
    validation = DataLoader(Augmented(), size) if scenario.validated else None
    trainer.fit(module, loader_for(scenario, size), validation, ckpt_path=path if resume else start)
    found = {
        "losses": module.losses,
        "seen": module.seen,
        "weights": {name: value.clone() for name, value in module.state_dict().items()},
        "rates": [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups],
        "scale": trainer._run.plugins["precision"].state_dict().get("scale"),
        "step": trainer.global_step,
        "epoch": trainer.current_epoch,
    }
    trainer.end_run()
    return found


def main(mode: str, folder: str, strategy: str, devices: str, *names: str) -> None:
    """Train the named scenarios and write what came out, a file for each rank."""
    chosen = [scenario for scenario in SCENARIOS if scenario.name in names]
    resume = mode == "resumed"
    found = {s.name: train(s, Path(folder), strategy, int(devices), resume=resume) for s in chosen}
    torch.save(found, Path(folder, f"{mode}-{strategy}.{make_trainer().global_rank}"))


if __name__ == "__main__":
    main(*sys.argv[1:])

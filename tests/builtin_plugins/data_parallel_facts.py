"""What two ranks of a data-parallel strategy find out in one program; each writes it to a file of its own."""

from __future__ import annotations

import errno
import math
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from support.reference import GLOBAL_BATCH, Net, dataset, make_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from builtin_plugins.fp16_mixed.precision import Float16MixedPrecision
from core import Callback, Module
from core.errors import CheckpointError
from core.optim import state_bytes

BATCHES, FIRST, SAMPLES = 6, 3, 11


class Losses(Net):
    """The reference net, keeping its losses."""

    def __init__(self) -> None:
        super().__init__("adam")
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.losses.append(loss.item())
        return loss


def loader(ranks: int, batches: int = BATCHES) -> DataLoader[Any]:
    """Return the loader of the reference's global batches."""
    return DataLoader(dataset(batches), GLOBAL_BATCH // ranks)


# ------------------------------------------------------------------ one rank overflows


class OneOverflows(Net):
    """Its first loss is infinite on rank 1 only."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * math.inf if batch_idx == 0 and self.global_rank == 1 else loss


class Notes(Callback):
    """Notes the first weight, the scale and the skipped steps after each batch."""

    def __init__(self) -> None:
        self.rows: list[tuple[list[float], float, int]] = []

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        scale = trainer._run.plugins["precision"].scaler.get_scale()
        self.rows.append((module.first[0].bias.tolist(), scale, trainer.skipped_steps))


def overflow(strategy: str, folder: Path) -> Any:
    """Train two steps in float16 of which the first overflows on one rank."""
    notes = Notes()
    precision = Float16MixedPrecision(init_scale=1024.0)
    trainer = make_trainer(
        strategy=strategy, devices=2, max_steps=2, max_epochs=1, precision=precision, callbacks=notes
    )
    trainer.fit(OneOverflows(), loader(2))
    return notes.rows


# ------------------------------------------------------------------ values across ranks


class Logs(Module):
    """Logs the samples in every way that brings ranks together."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.seen: list[float] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        (values,) = batch
        self.seen += values.tolist()
        self.log("mean", values.mean(), sync_dist=True)
        self.log("sum", values.sum(), reduce_fx="sum", sync_dist=True)
        self.log("max", values.max(), reduce_fx="max", sync_dist=True)
        self.log("min", values.min(), reduce_fx="min", sync_dist=True)
        self.log("count", len(values), reduce_fx="sum", sync_dist=True)
        self.log("own", values.mean())


def metrics(strategy: str, folder: Path) -> Any:
    """Evaluate eleven samples, and one alone."""
    found = []
    for count in (SAMPLES, 1):
        data = TensorDataset(torch.arange(count, dtype=torch.float32) ** 2)
        module = Logs()
        trainer = make_trainer(strategy=strategy, devices=2)
        (values,) = trainer.validate(module, DataLoader(data, 2), verbose=False)
        trainer.end_run()
        found.append((module.seen, values))
    return found


# ------------------------------------------------------------------ the order of samples


class Sees(Net):
    """Keeps the samples that it is given, by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[list[float]] = []

    def on_train_epoch_start(self) -> None:
        self.epochs.append([])

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.epochs[-1] += batch[0][:, 0].tolist()
        return super().training_step(batch, batch_idx)


def order(strategy: str, folder: Path) -> Any:
    """Train three epochs in random orders."""
    module = Sees()
    trainer = make_trainer(strategy=strategy, devices=2, max_epochs=3)
    trainer.fit(module, DataLoader(dataset(2), 4, shuffle=True))
    trainer.end_run()
    return module.epochs


# ------------------------------------------------------------------ saving that fails


def failing(strategy: str, folder: Path) -> Any:
    """Save where it cannot work, one way after another, and go on; return what each rank was told."""
    trainer = make_trainer(strategy=strategy, devices=2, max_epochs=1)
    trainer.fit(Losses(), loader(2))
    (folder / "file").write_text("not a folder")
    told = [_told(trainer, folder / "file" / "last.ckpt")]
    with patch("os.fsync", side_effect=OSError(errno.ENOSPC, "No space left on device")):
        told.append(_told(trainer, folder / f"{strategy}-full.ckpt"))
    trainer.callbacks[0].state_dict = lambda: {"mine": nn.Linear(1, 1)}  # type: ignore[method-assign]
    told.append(_told(trainer, folder / f"{strategy}-state.ckpt"))
    del trainer.callbacks[0].state_dict
    told.append(_told(trainer, folder / f"{strategy}-good.ckpt"))
    held = [len(getattr(optimizer, "_all_states", [])) for optimizer in trainer.optimizers]
    size = [state_bytes(optimizer) for optimizer in trainer.optimizers]
    trainer.end_run()
    return {"told": told, "held": held, "size": size}


def _told(trainer: Any, path: Path) -> str:
    try:
        trainer.save_checkpoint(path)
    except CheckpointError as error:
        return str(error)
    return "saved"


# ------------------------------------------------------------------ other layouts


def layouts(strategy: str, folder: Path) -> Any:
    """Save after three steps for one process to go on from, and go on from what one process saved."""
    first = Losses()
    trainer = make_trainer(strategy=strategy, devices=2, max_steps=FIRST, max_epochs=1)
    trainer.fit(first, loader(2))
    trainer.save_checkpoint(folder / f"{strategy}.ckpt")
    second = Losses()
    trainer = make_trainer(strategy=strategy, devices=2, max_epochs=2)
    trainer.fit(second, loader(2, FIRST), ckpt_path=folder / "single_device.ckpt")
    trainer.save_checkpoint(folder / f"{strategy}-went-on.ckpt")
    trainer.end_run()
    return first.losses, second.losses


# ------------------------------------------------------------------ without optimizer, with LBFGS


class Bare(Net):
    """Configures no optimizer."""

    def configure_optimizers(self) -> None:
        return None


class SecondOrder(Losses):
    """Optimized by LBFGS."""

    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=4)


def others(strategy: str, folder: Path) -> Any:
    """Train without an optimizer, in windows; and with LBFGS where that is possible."""
    trainer = make_trainer(strategy=strategy, devices=2, max_epochs=1, accumulate_grad_batches=2)
    trainer.fit(Bare(), loader(2))
    found: dict[str, Any] = {"bare": trainer.global_step}
    if strategy == "ddp":
        module = SecondOrder()
        trainer = make_trainer(strategy=strategy, devices=2, max_epochs=1)
        trainer.fit(module, loader(2))
        found["lbfgs"] = (module.losses, {n: v.clone() for n, v in module.state_dict().items()})
    trainer.end_run()
    return found


FACTS = (overflow, metrics, order, failing, layouts, others)


def main(strategy: str, folder: str) -> None:
    """Find everything out."""
    found = {fact.__name__: fact(strategy, Path(folder)) for fact in FACTS}
    torch.save(found, Path(folder, f"facts.{make_trainer().global_rank}"))


if __name__ == "__main__":
    main(*sys.argv[1:])

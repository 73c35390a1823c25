"""What several ranks of one strategy do for the tests, all of it in one set of processes.

Each rank writes what it found to a file of its own; the tests compare.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from support.reference import GLOBAL_BATCH, Case, Net, by_hand, dataset, furthest, make_trainer, with_trainer
from torch import nn
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Subset

from core import Callback, Module
from core.optim import state_bytes

CASES = (
    Case("sgd", 4, clip=0.5),
    Case("two", 3, clip=0.05, algorithm="value"),
    Case("two", 4, clip=0.5),
    Case("groups", 8, 3),
    Case("adamw", precision="64-true"),
    Case("two", 4, clip=0.5, precision="16-mixed"),
)


def fsdp(**options: Any) -> object:
    """Return the strategy; every spawned rank imports this file, and only some need to load it."""
    from builtin_plugins.fsdp.strategy import FSDPStrategy

    return FSDPStrategy(**options)


VARIANTS: dict[str, dict[str, Callable[[], object]]] = {
    "fsdp": {
        "one group": fsdp,
        "groups by class": lambda: fsdp(wrap="Sequential"),
        "groups by size, kept": lambda: fsdp(min_params=20, reshard_after_forward=False, checkpoint="sharded"),
    },
}
ELSEWHERE = {"ddp_sharded_spawn": CASES[2:3], "ddp_fork": CASES}
"""Strategies whose ranks are processes of their own, and what they train: each spawned one takes seconds to start."""
UNEVEN = 9
"""Samples to evaluate in batches of two: rank 0 of 2 gets three batches, rank 1 two."""


class Noisy(Module):
    """Draws random numbers and has buffers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Linear(32, 16))
        self.head = nn.Linear(16, 2)

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self.head(self.body(batch[0])), batch[1])

    def validation_step(self, batch, batch_idx):
        scores = self.head(self.body(batch[0]))
        self.log("val_loss", nn.functional.mse_loss(scores, batch[1]), sync_dist=True)
        self.log("seen", float(len(scores)), reduce_fx="sum", sync_dist=True)

    def configure_optimizers(self):
        bodies = torch.optim.AdamW(self.body.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.StepLR(bodies, 3, 0.5)
        heads = torch.optim.SGD(self.head.parameters(), lr=0.05, momentum=0.9)
        return [bodies, heads], [{"scheduler": schedule, "interval": "step"}]


class Look(Callback):
    """Saves inside the second epoch, keeps this rank's losses, measures what it holds, counts what a step sends."""

    def __init__(self, path: str | None) -> None:
        self.path, self.bytes = path, 0
        self.losses: list[float] = []
        self.exchanges: dict[str, int] = {}
        self.whole_between_evaluations = 0
        self._counting = profile(activities=[ProfilerActivity.CPU])

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.current_epoch == 2 and batch_idx == 1:
            self._counting.start()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.current_epoch == 2 and batch_idx == 1:
            self._counting.stop()
            events = self._counting.key_averages()
            self.exchanges = {e.key.removeprefix("c10d::"): e.count for e in events if e.key.startswith("c10d::")}
        self.losses.append(outputs["loss"].item())
        if trainer.current_epoch == 1 and batch_idx == 2 and self.path is not None:
            trainer.save_checkpoint(self.path)
        self.bytes = sum(map(state_bytes, trainer.optimizers))

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        self.whole_between_evaluations += sum(not isinstance(p, DTensor) for p in module.parameters())


def noisy(
    strategy: object, devices: int, path: str, *, resume: bool, batch: int = 0, **settings: Any
) -> dict[str, Any]:
    """Train :class:`Noisy`, from the start or from ``path``; return losses, metrics, bytes and whether it is whole."""
    module, look = Noisy(), Look(None if resume else path)
    torch.manual_seed(13 if resume else 4)
    trainer = make_trainer(strategy=strategy, devices=devices, max_epochs=3, callbacks=[look], **settings)
    data = dataset(5)
    loader = DataLoader(data, batch_size=batch or GLOBAL_BATCH // devices, shuffle=True)
    evaluation = DataLoader(Subset(data, range(UNEVEN)), batch_size=2)
    trainer.fit(module, loader, evaluation, ckpt_path=path if resume else None)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    module.eval()
    features, target = (tensor[:UNEVEN] for tensor in data.tensors)
    with torch.no_grad():
        by_itself = nn.functional.mse_loss(module.head(module.body(features)), target)
    again = trainer.validate(module, evaluation, verbose=False)[0] if strategy not in ELSEWHERE else {}
    trainer.end_run()
    found = {"losses": look.losses, "metrics": metrics, "bytes": look.bytes, "val_loss": float(by_itself)}
    found |= {"exchanges": look.exchanges, "whole": look.whole_between_evaluations}
    return {**found, "validated": again, "weight": module.head.weight.sum().item()}


def save_between_epochs(strategy: object, devices: int, path: str) -> None:
    """Train the first epoch of the case that :func:`go_on` ends."""
    module, trainer = Net("two"), make_trainer(strategy=strategy, devices=devices, max_epochs=1)
    trainer.fit(module, DataLoader(dataset(10), batch_size=GLOBAL_BATCH // devices))
    trainer.save_checkpoint(path)
    trainer.end_run()


def go_on(strategy: object, devices: int, path: str) -> float:
    """Train the second epoch, and return how far from the loop by hand that ends."""
    module, trainer = Net("two"), make_trainer(strategy=strategy, devices=devices, max_epochs=2)
    trainer.fit(module, DataLoader(dataset(10), batch_size=GLOBAL_BATCH // devices), ckpt_path=path)
    trainer.end_run()
    return furthest(dict(module.state_dict()), by_hand(Case("two")))


class Manual(Net):
    """Runs backward and the steps of its two optimizers by itself."""

    automatic_optimization = False

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()


def by_itself(strategy: object) -> float:
    """Train a module that optimizes by itself, and return how far from the loop by hand that ends."""
    module, trainer = Manual("two"), make_trainer(strategy=strategy, devices=2, max_epochs=2)
    trainer.fit(module, DataLoader(dataset(10), batch_size=GLOBAL_BATCH // 2))
    trainer.end_run()
    return furthest(dict(module.state_dict()), by_hand(Case("two")))


def main(strategy: str, output: str, action: str) -> None:
    """Train every case and :class:`Noisy`, or go on with what an earlier set of processes saved."""
    found: dict[str, Any] = {}
    for number, (name, make) in enumerate(VARIANTS.get(strategy, {"": lambda: strategy}).items()):
        path = str(Path(output).with_name(f"{number}.ckpt"))
        found[name] = noisy(make(), 2, path, resume=action == "resume")
        if action == "train":
            trained = {case: with_trainer(case, make(), 2) for case in ELSEWHERE.get(strategy, CASES)}
            if strategy not in ELSEWHERE:
                save_between_epochs(make(), 2, path.replace(".ckpt", ".epoch.ckpt"))
            found[name]["manual"] = by_itself(make()) if strategy == "zero" else 0.0
            found[name]["distances"] = {str(case): furthest(state, by_hand(case)) for case, state in trained.items()}
    rank = os.environ.get("RANK", "0")
    Path(f"{output}.{action}.{rank}").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

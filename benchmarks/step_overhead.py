"""What a training step costs beside the arithmetic: a hand-written loop, Interlock, and its peers.

A small MLP on one thread, so that what a library adds shows. After the plain step come steps with a feature on (100
logged metrics, 5 callbacks, accumulation, 16-mixed), each held against a hand-written loop that does the same. Peers
that are not installed are left out; ``pip install "interlock[bench]"`` brings them.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec

import features
import peers
import torch
from features import FEATURES, Feature, make_net
from timing import Clock, arguments, measure, show, summarize, write
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import CSVLogger, ModelCheckpoint, Module, Trainer
from core.callbacks import ProgressBar

BASE = "hand-written"


def make_loader(steps: int, data: str) -> DataLoader:
    """Return a loader of ``steps`` batches of 16: made beforehand, or collated from samples."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(steps * 16, 32, generator=generator)
    y = torch.randint(0, 10, (steps * 16,), generator=generator)
    if data == "samples":
        return DataLoader(TensorDataset(x, y), batch_size=16)
    return DataLoader(list(zip(x.split(16), y.split(16), strict=True)), batch_size=None)


def train_by_hand(clock: Clock, loader: DataLoader, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Run the loop that everything is measured against."""
    for x, y in loader:
        clock.tick()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def by_hand(clock: Clock, loader: DataLoader) -> None:
    net = make_net()
    train_by_hand(clock, loader, net, torch.optim.SGD(net.parameters(), lr=0.01))


class Ours(Module):
    def __init__(self, clock: Clock, log: bool) -> None:
        super().__init__()
        self.net, self.clock, self.log_loss = make_net(), clock, log

    def training_step(self, batch, batch_idx):
        self.clock.tick()
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        if self.log_loss:
            self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def interlock(clock: Clock, loader: DataLoader, *, full: bool, precision: str = "32-true") -> None:
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [ModelCheckpoint(), ProgressBar(console=terminal())] if full else []
        Trainer(
            accelerator="cpu",
            precision=precision,
            max_epochs=1,
            logger=CSVLogger(folder) if full else False,
            callbacks=callbacks,
            enable_checkpointing=full,
            enable_progress_bar=full,
            default_root_dir=folder,
        ).fit(Ours(clock, full), loader)


def terminal():
    """Return a terminal that nobody looks at: the bar is drawn as for a person."""
    from rich.console import Console

    return Console(file=io.StringIO(), force_terminal=True, width=120)


def lightning(clock: Clock, loader: DataLoader, *, full: bool) -> None:
    import lightning.pytorch as pl

    class Theirs(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net()

        training_step = Ours.training_step
        configure_optimizers = Ours.configure_optimizers

    module = Theirs()
    module.clock, module.log_loss = clock, full
    with tempfile.TemporaryDirectory() as folder:
        pl.Trainer(
            accelerator="cpu",
            max_epochs=1,
            logger=pl.loggers.CSVLogger(folder) if full else False,
            enable_checkpointing=full,
            enable_progress_bar=full,
            enable_model_summary=False,
            default_root_dir=folder,
        ).fit(module, loader)


def fabric(clock: Clock, loader: DataLoader) -> None:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    net = make_net()
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.01))
    for x, y in fabric.setup_dataloaders(loader):
        clock.tick()
        loss = nn.functional.cross_entropy(net(x), y)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def accelerate(clock: Clock, loader: DataLoader) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = make_net()
    net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01), loader)
    for x, y in loader:
        clock.tick()
        loss = nn.functional.cross_entropy(net(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def ignite(clock: Clock, loader: DataLoader) -> None:
    from ignite.engine import Engine

    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(engine: Engine, batch) -> None:
        clock.tick()
        x, y = batch
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    Engine(step).run(loader, max_epochs=1)


def contenders(clock: Clock, data: str) -> dict[str, Callable[[], None]]:
    loader = make_loader(clock.total, data)
    found: dict[str, Callable[[], None]] = {
        BASE: lambda: by_hand(clock, loader),
        "interlock, bare": lambda: interlock(clock, loader, full=False),
        "interlock, bar + csv + checkpoint": lambda: interlock(clock, loader, full=True),
    }
    if find_spec("lightning"):
        found["lightning, bare"] = lambda: lightning(clock, loader, full=False)
        found["lightning, bar + csv + checkpoint"] = lambda: lightning(clock, loader, full=True)
        found["fabric"] = lambda: fabric(clock, loader)
    if find_spec("accelerate"):
        found["accelerate"] = lambda: accelerate(clock, loader)
    if find_spec("ignite"):
        found["ignite"] = lambda: ignite(clock, loader)
    return {name: quietly(run) for name, run in found.items()}


def quietly(run: Callable[[], None]) -> Callable[[], None]:
    """Keep what a contender prints out of the table."""

    def call() -> None:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            run()

    return call


def with_feature(clock: Clock, data: str, feature: Feature) -> dict[str, Callable[[], None]]:
    loader = make_loader(clock.total, data)
    chosen = {BASE: features.by_hand, "interlock": features.interlock, **peers.installed(feature)}
    return {name: quietly(lambda run=run: run(clock, loader, feature)) for name, run in chosen.items()}


def main() -> None:
    example = "python benchmarks/step_overhead.py --rounds 30 --features '100 metrics' 16-mixed --json figures.json"
    parser = arguments(__doc__.splitlines()[0], example)
    parser.add_argument("--data", choices=("batches", "samples"), default="batches", help="what the loader gives")
    titles = ["plain", *(feature.title for feature in FEATURES)]
    parser.add_argument("--features", nargs="*", choices=titles, default=titles, metavar="NAME", help="; ".join(titles))
    settings = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    clock = Clock(settings.warmup, settings.steps)
    groups = {"plain": contenders(clock, settings.data)}
    groups |= {feature.title: with_feature(clock, settings.data, feature) for feature in FEATURES}
    rows: list[dict[str, float | str]] = []
    for title in settings.features:
        chosen = groups[title]
        if settings.only:
            chosen = {n: r for n, r in chosen.items() if n == BASE or any(word in n for word in settings.only)}
        found = summarize(measure(chosen, clock, settings.rounds), BASE)
        show(f"one training step, {title}: {settings.rounds} rounds of {settings.steps} steps", found, BASE)
        rows += [{"feature": title, **row} for row in found]
    write(settings.json, rows, settings)


if __name__ == "__main__":
    main()

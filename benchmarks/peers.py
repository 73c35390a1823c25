"""The same features with each peer that is installed, as its users would write them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec

import torch
from features import LOG_EVERY, Counting, Feature, Ours, Rows, make_net, make_optimizer
from timing import Clock
from torch import nn
from torch.utils.data import DataLoader

Contender = Callable[[Clock, DataLoader, Feature], None]


def lightning(clock: Clock, loader: DataLoader, feature: Feature) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.plugins import MixedPrecision

    class Theirs(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.clock, self.names = make_net(), clock, feature.names

        training_step = Ours.training_step
        configure_optimizers = Ours.configure_optimizers

    class CountingTheirs(Counting, pl.Callback):
        pass

    # by its name 16-mixed would become bf16-mixed on the cpu
    scaled = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu")) if feature.half else None
    with tempfile.TemporaryDirectory() as folder:
        pl.Trainer(
            accelerator="cpu",
            plugins=[scaled] if scaled else [],
            max_epochs=1,
            accumulate_grad_batches=feature.accumulate,
            logger=pl.loggers.CSVLogger(folder) if feature.metrics else False,
            log_every_n_steps=LOG_EVERY,
            callbacks=[CountingTheirs() for _ in range(feature.callbacks)],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        ).fit(Theirs(), loader)


def fabric(clock: Clock, loader: DataLoader, feature: Feature) -> None:
    from lightning.fabric import Fabric
    from lightning.fabric.loggers import CSVLogger
    from lightning.fabric.plugins import MixedPrecision

    with tempfile.TemporaryDirectory() as folder:
        fabric = Fabric(
            accelerator="cpu",
            devices=1,
            plugins=[MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))] if feature.half else [],
            callbacks=[Counting() for _ in range(feature.callbacks)],
            loggers=CSVLogger(folder),
        )
        net = make_net()
        net, optimizer = fabric.setup(net, make_optimizer(net))
        names, window, total = feature.names, feature.accumulate, len(loader)
        logged: dict[str, torch.Tensor] = {}
        for index, batch in enumerate(fabric.setup_dataloaders(loader)):
            if feature.callbacks:
                fabric.call("on_train_batch_start", fabric, net, batch, index)
            clock.tick()
            x, y = batch
            steps = (index + 1) % window == 0 or index + 1 == total
            with fabric.no_backward_sync(net, enabled=not steps) if window > 1 else nullcontext():
                loss = nn.functional.cross_entropy(net(x), y)
                for name in names:
                    logged[name] = loss.detach()
                fabric.backward(loss / window if window > 1 else loss)
            if steps:
                optimizer.step()
                optimizer.zero_grad()
            if names and (index + 1) % LOG_EVERY == 0:
                fabric.log_dict(logged, index + 1)
            if feature.callbacks:
                fabric.call("on_train_batch_end", fabric, net, loss, batch, index)


def accelerate(clock: Clock, loader: DataLoader, feature: Feature) -> None:
    """Train with Accelerate; callbacks and the file of metrics are the user's own there."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=feature.accumulate)
    net = make_net()
    net, optimizer, loader = accelerator.prepare(net, make_optimizer(net), loader)
    callbacks = [Counting() for _ in range(feature.callbacks)]
    logged: dict[str, torch.Tensor] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows = Rows(folder, feature.names)
        for index, batch in enumerate(loader):
            for callback in callbacks:
                callback.on_train_batch_start(None, net, batch, index)
            clock.tick()
            x, y = batch
            with accelerator.accumulate(net) if feature.accumulate > 1 else nullcontext():
                loss = nn.functional.cross_entropy(net(x), y)
                for name in feature.names:
                    logged[name] = loss.detach()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if logged and (index + 1) % LOG_EVERY == 0:
                rows.write(logged, index + 1)
            for callback in callbacks:
                callback.on_train_batch_end(None, net, loss, batch, index)
        rows.close()


def ignite(clock: Clock, loader: DataLoader, feature: Feature) -> None:
    """Train with Ignite; accumulation and scaling are written in its step function, as its own examples do."""
    from ignite.engine import Engine, Events

    net = make_net()
    optimizer = make_optimizer(net)
    scaler = torch.amp.GradScaler("cpu", enabled=feature.half)
    names, window, total = feature.names, feature.accumulate, len(loader)

    def step(engine: Engine, batch) -> float | torch.Tensor:
        clock.tick()
        x, y = batch
        with torch.autocast("cpu", torch.float16) if feature.half else nullcontext():
            loss = nn.functional.cross_entropy(net(x), y)
        metrics = engine.state.metrics
        for name in names:
            metrics[name] = loss.detach()
        if window > 1:
            loss = loss / window
        scaler.scale(loss).backward()
        if engine.state.iteration % window == 0 or engine.state.iteration == total:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return loss

    with tempfile.TemporaryDirectory() as folder:
        rows = Rows(folder, names)
        engine = Engine(step)
        for _ in range(feature.callbacks):
            counting = Counting()
            engine.add_event_handler(Events.ITERATION_STARTED, _started, counting)
            engine.add_event_handler(Events.ITERATION_COMPLETED, _ended, counting)
        if names:
            every = Events.ITERATION_COMPLETED(every=LOG_EVERY)
            engine.add_event_handler(every, lambda engine: rows.write(engine.state.metrics, engine.state.iteration))
        engine.run(loader, max_epochs=1)
        rows.close()


def _started(engine, counting: Counting) -> None:
    counting.on_train_batch_start(engine, None, engine.state.batch, engine.state.iteration - 1)


def _ended(engine, counting: Counting) -> None:
    counting.on_train_batch_end(engine, None, engine.state.output, engine.state.batch, engine.state.iteration - 1)


def installed(feature: Feature) -> dict[str, Contender]:
    """Return the peers that are there and can do the feature on the cpu."""
    found: dict[str, Contender] = {}
    if find_spec("lightning"):
        found |= {"lightning": lightning, "fabric": fabric}
    if find_spec("accelerate") and not feature.half:  # it trains in float32 there, and says nothing
        found["accelerate"] = accelerate
    if find_spec("ignite"):
        found["ignite"] = ignite
    return found

"""A training whose every call of a hook, and what it does to gradients, weights and scale, is written down."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from support.reference import make_trainer
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from core import Callback, Module

BATCHES, WINDOW = 5, 2
WATCHED = ("transfer_batch", "backward", "unscale_gradients", "clip_gradients", "optimizer_step")
ENTERED = ("forward_context", "skip_gradient_sync")
WEIGHTS = ("64-true", "16-true", "bf16-true")
MIXED = ("16-mixed", "bf16-mixed")

_log: list[str] = []


class LoggedSchedule(torch.optim.lr_scheduler.LambdaLR):
    """A schedule that writes down its steps."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer, _halve)

    def step(self, *arguments: Any) -> None:
        _log.append("scheduler.step")
        super().step(*arguments)


def _halve(step: int) -> float:
    return 0.5**step


class ObservedModule(Module):
    """A small network; ``bad_batches`` gives the numbers of micro-batches whose loss is infinite."""

    def __init__(self, bad_batches: tuple[int, ...] = ()) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.bad_batches = bad_batches
        self.sequential_module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if _log[-1:] != ["forward"]:  # replicas in one process run the step side by side
            _log.append("forward")
        features, target = batch
        # small enough for float16, whatever the loss scale
        loss = 0.01 * nn.functional.mse_loss(self.sequential_module(features), target)
        return loss * float("inf") if batch_idx in self.bad_batches else loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LoggedSchedule(optimizer), "interval": "step"}}


class Observer(Callback):
    """Keeps the events of a fit, and whether its strategy exchanges gradients between ranks, or leaves that out."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.exchanges = self.skips = False
        self.steps = self._step = 0

    def setup(self, trainer: Any, module: nn.Module, stage: str) -> None:
        hooks = trainer._run.hooks
        self.skips = hooks.changes("skip_gradient_sync")
        for name in WATCHED:
            setattr(hooks, name, _logged(name, getattr(hooks, name)))
        for name in ENTERED:
            setattr(hooks, name, _logged_context(name, getattr(hooks, name)))

    def on_train_start(self, trainer: Any, module: nn.Module) -> None:
        self.exchanges = _watch_exchange(trainer._run.wrapped.module)
        scaler = getattr(trainer._run.plugins["precision"], "scaler", None)
        if scaler is not None:
            scaler.unscale_ = _logged("scaler.unscale_", scaler.unscale_)
            scaler.update = _logged("scaler.update", scaler.update)
        for optimizer in trainer.optimizers:
            optimizer.step = _logged("step", optimizer.step)
        _log.clear()

    def on_train_batch_end(self, trainer: Any, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        # inside a window there may be none to see either: fsdp keeps them elsewhere until they are exchanged
        if trainer.global_step != self._step and all(parameter.grad is None for parameter in module.parameters()):
            _log.append("cleared")
        self._step = trainer.global_step

    def on_train_end(self, trainer: Any, module: nn.Module) -> None:
        self.events, self.steps = list(_log), trainer.global_step


def _logged(name: str, function: Any) -> Any:
    def call(*arguments: Any, **keywords: Any) -> Any:
        _log.append(name)
        return function(*arguments, **keywords)

    # schedulers look for marks on an optimizer's step
    vars(call).update(getattr(function, "__dict__", {}))
    return call


def _logged_context(name: str, make: Any) -> Any:
    def call(*arguments: Any) -> Any:
        return _Entered(name, make(*arguments))

    return call


class _Entered:
    def __init__(self, name: str, context: Any) -> None:
        self._name, self._context = name, context

    def __enter__(self) -> Any:
        _log.append(self._name)
        return self._context.__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._context.__exit__(*error)


def _watch_exchange(wrapped: nn.Module) -> bool:
    """Write down each exchange of gradients, several buckets of one backward as one; tell whether there are any."""
    if isinstance(wrapped, DistributedDataParallel):
        wrapped.register_comm_hook(None, _averaging)
        return True
    if type(wrapped).__module__.startswith("fairscale"):
        dist.reduce = _noting_exchange(dist.reduce)
        return True
    return False


def _averaging(state, bucket):  # torch reads annotations here, and cannot read those that are text
    _note_exchange()
    total = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return total.then(lambda done: done.value()[0].div_(dist.get_world_size()))


def _noting_exchange(reduce: Any) -> Any:
    reduce = getattr(reduce, "noted", reduce)

    def call(*arguments: Any, **keywords: Any) -> Any:
        _note_exchange()
        return reduce(*arguments, **keywords)

    call.noted = reduce
    return call


def _note_exchange() -> None:
    if _log[-1] != "exchange":
        _log.append("exchange")


def observe(
    strategy: str, precision: str, devices: int, accelerator: str = "cpu", bad_batches: tuple[int, ...] = ()
) -> Observer:
    """Train three steps: an epoch of five batches in windows of two."""
    observer = Observer()
    trainer = make_trainer(
        accelerator=accelerator,
        strategy=strategy,
        precision=precision,
        devices=devices,
        max_epochs=1,
        limit_train_batches=BATCHES,  # not every strategy gives each rank a part of the data
        accumulate_grad_batches=WINDOW,
        gradient_clip_val=0.1,
        callbacks=observer,
    )
    with _closing(trainer):
        trainer.fit(ObservedModule(bad_batches), _loader(trainer.world_size))
    return observer


@contextmanager
def _closing(trainer: Any) -> Any:
    try:
        yield
    finally:
        trainer.end_run()


def _loader(world_size: int) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(2)
    size = BATCHES * 4
    data = TensorDataset(torch.randn(size, 4, generator=generator), torch.randn(size, 2, generator=generator))
    return DataLoader(data, batch_size=4 // world_size)


def in_order(
    precision: str, exchanges: bool, skips: bool, accelerator: str = "cpu", bad_batches: tuple[int, ...] = ()
) -> list[str]:
    """Return the events that the design asks for.

    ``exchanges`` says whether exchanges of gradients are seen, ``skips`` whether the strategy can leave them out.
    """
    events = []
    for start in range(0, BATCHES, WINDOW):
        numbers = range(start, min(start + WINDOW, BATCHES))
        for number in numbers:
            last = number == numbers[-1]
            events += ["transfer_batch"] * (precision in WEIGHTS or accelerator != "cpu")
            events += ["skip_gradient_sync"] * (skips and not last)
            events += ["forward_context"] * (precision in (*WEIGHTS, *MIXED))
            events += ["forward", "backward"]
            events += ["exchange"] * (exchanges and last)
        good = not set(numbers) & set(bad_batches)
        if precision == "16-mixed":
            events += ["unscale_gradients", "scaler.unscale_"]
        if good:
            events += ["clip_gradients", "optimizer_step", "step"]
        if precision == "16-mixed":
            events += ["scaler.update"]
        events += ["scheduler.step"] * good
        events += ["cleared"]
    return events

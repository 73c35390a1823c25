"""Take steps in a run that nobody is to see: no callbacks, no loggers, no limits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from core.callbacks.base import Callback
from core.callbacks.events import Events
from core.data.combined import CombinedLoader
from core.data.sharding import set_epoch
from core.data.source import each
from core.data.stream import Micro, in_windows, read
from core.errors import InterlockError
from core.loggers.dummy import DummyLogger
from core.loops.progress import Progress
from core.loops.run import Run
from core.loops.schedules import Schedules
from core.loops.training import TrainingLoop


def hide(run: Run, callbacks: Sequence[Callback] = ()) -> None:
    """Let a run go on without its callbacks, loggers and limits; who calls it puts everything back afterwards.

    The module's own hooks go on being called: its steps may need what they do.
    """
    trainer = run.trainer
    trainer.callbacks = list(callbacks)
    trainer.loggers = [DummyLogger() for _ in trainer.loggers]
    trainer.progress = Progress()
    trainer.limit_train_batches = 1.0
    trainer.val_check_interval, trainer.check_val_every_n_epoch = 1.0, 1
    trainer.should_stop = False
    run.events = Events(trainer, run.module, trainer.callbacks, run.data.datamodule)
    run.writer = None


def take_steps(
    run: Run,
    loader: Any,
    count: int,
    window: int = 1,
    one: Callable[[TrainingLoop, Micro, int], bool] | None = None,
    enough: Callable[[], bool] | None = None,
) -> int:
    """Take ``count`` optimizer steps over ``loader``, again from its start where it is shorter; return how many.

    Args:
        run: hidden by :func:`hide`.
        loader: this rank's loader.
        count: how many.
        window: micro-batches per step.
        one: runs one micro-batch; by default the training step of a fit.
        enough: says after a step whether to stop before ``count``.

    Raises:
        InterlockError: when the loader has no batch.
    """
    trainer, loop, done = run.trainer, _begin(run, loader), 0
    with trainer.doing("train"), run.router.running(loop.step.own_step):
        while done < count:
            before = done
            for micro in _pass(run, loop, window):
                if one is None:
                    whole = loop.step.micro_batch(micro, trainer.progress.batch)
                else:
                    whole = one(loop, micro, trainer.progress.batch)
                if micro.ends_window:
                    done += 1
                    if (enough is not None and enough()) or done == count:
                        return done
                if not whole:
                    break
            if done == before:
                raise InterlockError("the training loader gives no batch, so there is nothing to try")
            run.events.fire("on_train_epoch_end")
            trainer.progress.next_epoch()
    return done


def _begin(run: Run, loader: Any) -> TrainingLoop:
    """Make a training loop for ``run``, as far as its first epoch."""
    loop = run.loop = TrainingLoop(run, _own(loader), None)
    # a search sets learning rates itself, or does not care
    loop.schedules = loop.step.schedules = Schedules([], run.module)
    run.trainer.results = loop.results
    loop.step.wrapped.train()
    run.events.fire("on_fit_start")
    run.events.fire("on_train_start")
    return loop


def _pass(run: Run, loop: TrainingLoop, window: int) -> Any:
    """Begin a pass over the loader and return its micro-batches."""
    set_epoch(loop.loader, run.trainer.progress.epoch)
    loop.results.reset()
    run.events.fire("on_train_epoch_start")
    together = None
    if run.ranks.world_size > 1:

        def together(mine: bool) -> bool:
            return bool(run.hooks.reduce(torch.tensor([int(mine)], device=run.device), "min"))

    return in_windows(read(loop.loader), window, loop.total, 0, together)


def _own(loader: Any) -> Any:
    """Return a loader with the same batches that can be read without disturbing another reading of ``loader``.

    Raises:
        InterlockError: for one that can be read only once.
    """
    if isinstance(loader, CombinedLoader):
        return each(loader, _own)
    if isinstance(loader, DataLoader):
        twin = copy.copy(loader)
        twin.__dict__["_iterator"] = None  # persistent workers stay with the original
        return twin
    if hasattr(loader, "__next__"):
        raise InterlockError(
            f"a search would use up the batches of a {type(loader).__name__}, which can be read only once\n"
            "  hint: give a DataLoader, or an iterable that starts again when it is read again"
        )
    return loader

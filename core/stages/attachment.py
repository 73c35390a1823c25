"""Let the module and the data module see the Trainer while a run goes on, and one run at a time have a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from torch import nn

from core.callbacks.logging import logging_of
from core.interop import foreign_attachment
from core.module import Module

if TYPE_CHECKING:
    from core.loops.run import Run
    from core.trainer import Trainer

_holders: WeakSet[Trainer] = WeakSet()
"""Trainers that hold a run which is over."""


def hold(trainer: Trainer, run: Run) -> None:
    """Let ``trainer`` hold ``run``, which is over, until the next one needs its place or its module."""
    trainer._run = run
    _holders.add(trainer)


def end_earlier(trainer: Trainer, module: nn.Module) -> None:
    """End what other Trainers still hold of runs on ``module`` or a part of it: it would act in the next one too."""
    _holders.discard(trainer)
    own = {id(parameter) for parameter in module.parameters()}
    for other in list(_holders):
        run = other._run
        if run is not None and (run.module is module or any(id(p) in own for p in run.module.parameters())):
            other.end_run()
        if other._run is None:
            _holders.discard(other)


@contextmanager
def attach(trainer: Trainer, module: nn.Module, datamodule: Any) -> Iterator[None]:
    """Attach the Trainer; a module of ours keeps it after the run, since people look at it then."""
    with foreign_attachment(trainer, module), logging_of(trainer):
        if isinstance(module, Module):
            module._trainer = trainer
        if datamodule is not None:
            datamodule.trainer = trainer
        yield

"""Bring home what a run changed in processes of its own: weights, counters, metrics, callbacks, loggers."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from torch import nn

from core.data.nested import detach_to_host

if TYPE_CHECKING:
    from core.loops.run import Run
    from core.trainer import Trainer


def collect(run: Run, *, weights: bool = True) -> dict[str, Any]:
    """Return what rank 0 has after the run; tensors in host memory, without the ``weights`` if not wanted."""
    trainer = run.trainer
    return {
        "state_dict": detach_to_host(dict(run.module.state_dict())) if weights else None,
        "progress": trainer.progress.state_dict(),
        "metrics": {name: float(value) for name, value in trainer.callback_metrics.items()},
        "callbacks": [_attributes(callback) for callback in trainer.callbacks],
        "loggers": [_attributes(logger) for logger in trainer.loggers],
    }


def take(trainer: Trainer, module: nn.Module, changes: dict[str, Any]) -> None:
    """Put what :func:`collect` returned into the objects that the user holds."""
    if changes["state_dict"] is not None:
        module.load_state_dict(changes["state_dict"])
    trainer.progress.load_state_dict(changes["progress"])
    trainer._metrics.update(changes["metrics"])
    for holder, attributes in [
        *zip(trainer.callbacks, changes["callbacks"], strict=True),
        *zip(trainer.loggers, changes["loggers"], strict=True),
    ]:
        vars(holder).update(attributes)


def _attributes(holder: object) -> dict[str, Any]:
    """Return the attributes of ``holder`` that can travel; one that cannot stays as its owner at home has it."""
    travelling = {}
    for name, value in vars(holder).items():
        try:
            pickle.dumps(value)
        except Exception:  # pickling runs the value's own code, which may raise anything
            continue
        travelling[name] = value
    return travelling

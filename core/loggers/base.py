"""What every logger is."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.environments import detect_environment

if TYPE_CHECKING:
    from torch import nn

    from core.callbacks import ModelCheckpoint


class Logger(ABC):
    """Takes metrics as numbers. The Trainer calls it on rank 0 only."""

    _version: int | str | None = None

    @property
    def name(self) -> str | None:
        """The name that runs are gathered under, if it has one."""
        return None

    @property
    def version(self) -> int | str | None:
        """What tells this run from others of its name, if it has something."""
        return self._version

    @property
    def save_dir(self) -> str | None:
        """The folder for all runs, if it has one."""
        return None

    @property
    def log_dir(self) -> str | None:
        """The folder that this logger writes to, if it has one; checkpoints go below it."""
        return None

    @property
    def experiment(self) -> Any:
        """The object that the logger writes with, for what has no method here; without effect on ranks but 0."""
        return Nothing()

    @abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Take ``metrics`` of ``step``."""

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:  # noqa: B027  # a logger may ignore them
        """Take the hyperparameters of a run, in plain types."""

    def log_graph(self, model: nn.Module) -> None:  # noqa: B027
        """Draw the model; called at the start of a fit."""

    def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:  # noqa: B027
        """A ModelCheckpoint has saved; called when the file is there."""

    def adopt_version(self, version: int | str | None) -> None:
        """Take the version that rank 0 chose, so that all ranks name the same run."""
        self._version = version

    def save(self) -> None:  # noqa: B027  # a logger may write at once
        """Write what is held back; called at the end of each epoch, and when a run is over."""

    def finalize(self, status: str) -> None:
        """The run is over: ``status`` is ``"success"`` or ``"failed"``."""
        self.save()


class Nothing:
    """Takes any call, look-up and assignment of items, and does nothing."""

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # copying and pickling look for these
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Nothing:
        return self

    def __getitem__(self, key: Any) -> Nothing:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def is_writing_rank() -> bool:
    """Tell whether this is the process of its run that writes."""
    dist = sys.modules.get("torch.distributed")  # looking at old results needs no torch
    if dist is not None and dist.is_available() and dist.is_initialized():
        return bool(dist.get_rank() == 0)
    ranks = detect_environment().ranks
    return ranks is None or ranks.global_rank == 0


def prefixed(prefix: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``metrics`` with ``prefix-`` before each name, if there is a prefix."""
    return {f"{prefix}-{name}": value for name, value in metrics.items()} if prefix else dict(metrics)


def flattened(params: Mapping[str, Any], joint: str = "/") -> dict[str, Any]:
    """Return nested hyperparameters under joined names; what is no number, text or truth value as text."""
    flat: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}{joint}{inner}": each for inner, each in flattened(value, joint).items()}
        else:
            flat[str(name)] = value if isinstance(value, bool | int | float | str) else str(value)
    return flat

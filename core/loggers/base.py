"""What every logger is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class Logger(ABC):
    """Takes metrics as numbers. The Trainer calls it on rank 0 only."""

    @property
    def log_dir(self) -> str | None:
        """The folder that this logger writes to, if it has one; checkpoints go below it."""
        return None

    @abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Take ``metrics`` of ``step``."""

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:  # noqa: B027  # a logger may ignore them
        """Take the hyperparameters of a run, in plain types."""

    def save(self) -> None:  # noqa: B027  # a logger may write at once
        """Write what is held back; called at the end of each epoch."""

    def finalize(self, status: str) -> None:
        """The run is over: ``status`` is ``"success"`` or ``"failed"``."""
        self.save()

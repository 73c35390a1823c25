"""A logger that logs nothing."""

from __future__ import annotations

from collections.abc import Mapping

from core.loggers.base import Logger


class DummyLogger(Logger):
    """Stands where a run that nobody is to see would have a logger; what is done with ``experiment`` has no effect."""

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Forget them."""

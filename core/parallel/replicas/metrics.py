"""Metric objects inside a module that runs in threads: one object for all replicas, used by one at a time."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from torch import nn

METRIC_METHODS = ("update", "compute", "reset")


class SharedMetric:
    """Stands for a metric object in every replica; each call of its methods has it alone."""

    _lock = RLock()

    def __init__(self, metric: nn.Module) -> None:
        self.shared_metric = metric

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the metric itself."""
        with self._lock:
            return self.shared_metric(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.shared_metric, name)
        return self._alone(value) if callable(value) else value

    def _alone(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                return method(*args, **kwargs)

        return call


def is_metric(part: nn.Module) -> bool:
    """Tell whether a part of a module accumulates over steps, as torchmetrics' objects do."""
    return all(callable(getattr(type(part), name, None)) for name in METRIC_METHODS)

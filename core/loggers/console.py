"""Metrics as lines of text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO

from core.loggers.base import Logger, flattened, prefixed


class ConsoleLogger(Logger):
    """Prints a line for each set of metrics: ``step 50  epoch 0  loss 0.4321``.

    Args:
        stream: where to; standard error by default.
        prefix: before the name of each metric.
        digits: significant digits.
    """

    def __init__(self, stream: TextIO | None = None, prefix: str = "", digits: int = 4) -> None:
        self._stream, self._prefix, self._digits = stream, prefix, digits

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}  # streams do not travel to other processes

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        values = dict(metrics)
        epoch = values.pop("epoch", None)
        parts = [f"step {step}", *([] if epoch is None else [f"epoch {epoch:g}"])]
        parts += [f"{name} {value:.{self._digits}g}" for name, value in prefixed(self._prefix, values).items()]
        self._print("  ".join(parts))

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        self._print("hyperparameters  " + "  ".join(f"{name}={value}" for name, value in flattened(params).items()))

    def _print(self, text: str) -> None:
        print(text, file=self._stream or sys.stderr, flush=True)

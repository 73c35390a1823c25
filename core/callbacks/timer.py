"""Measure the time of a run, and end training when it is used up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from core.arguments import choice, duration, flag
from core.callbacks.base import Callback
from core.callbacks.moments import say

if TYPE_CHECKING:
    from core.trainer import Trainer

STAGES = ("train", "validate", "test", "predict")


class Timer(Callback):
    """Ends training after ``duration``; the time before a resume counts.

    ``Trainer(max_time=...)`` does the same with less; this callback can also be asked.

    Args:
        duration: a timedelta, its keywords in a dict, or ``"DD:HH:MM:SS"``; None only measures.
        interval: look after each ``"step"`` or each ``"epoch"``.
        verbose: say on standard error when the time is up.
    """

    def __init__(
        self,
        duration: str | timedelta | Mapping[str, int] | None = None,
        interval: Literal["step", "epoch"] = "step",
        verbose: bool = True,
    ) -> None:
        self.duration = _duration(duration)
        self.interval = choice("interval", interval, ("step", "epoch"))
        self.verbose = flag("verbose", verbose)
        self._start: dict[str, float] = {}
        self._end: dict[str, float] = {}
        self._before = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"time_elapsed": {stage: self.time_elapsed(stage) for stage in STAGES}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = state_dict["time_elapsed"]["train"]

    def start_time(self, stage: str = "train") -> float | None:
        """Return when ``stage`` began, by the monotonic clock; None if it has not."""
        return self._start.get(stage)

    def end_time(self, stage: str = "train") -> float | None:
        """Return when ``stage`` ended, by the monotonic clock; None if it has not."""
        return self._end.get(stage)

    def time_elapsed(self, stage: str = "train") -> float:
        """Return the seconds that ``stage`` has taken so far."""
        start = self._start.get(stage)
        before = self._before if stage == "train" else 0.0
        return before if start is None else before + self._end.get(stage, time.monotonic()) - start

    def time_remaining(self, stage: str = "train") -> float | None:
        """Return the seconds that are left of the duration, None where there is none."""
        return None if self.duration is None else self.duration.total_seconds() - self.time_elapsed(stage)

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.interval == "step":
            self._look(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        if self.interval == "epoch":
            self._look(trainer)

    def _look(self, trainer: Trainer) -> None:
        left = self.time_remaining()
        if left is not None and left <= 0 and not trainer.should_stop:
            trainer.should_stop = True  # the loop lets all ranks end together
            if self.verbose:
                say(trainer, f"the time for training, {self.duration}, is up at step {trainer.global_step}")

    def _begin(self, stage: str) -> None:
        self._start[stage] = time.monotonic()
        self._end.pop(stage, None)

    def on_train_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._begin("train")

    def on_train_end(self, trainer: Trainer, module: nn.Module) -> None:
        self._end["train"] = time.monotonic()

    def on_validation_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._begin("validate")

    def on_validation_end(self, trainer: Trainer, module: nn.Module) -> None:
        self._end["validate"] = time.monotonic()

    def on_test_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._begin("test")

    def on_test_end(self, trainer: Trainer, module: nn.Module) -> None:
        self._end["test"] = time.monotonic()

    def on_predict_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._begin("predict")

    def on_predict_end(self, trainer: Trainer, module: nn.Module) -> None:
        self._end["predict"] = time.monotonic()


def _duration(given: Any) -> timedelta | None:
    return duration("duration", given)

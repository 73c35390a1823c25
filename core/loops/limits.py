"""When training ends, and when it is validated."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import torch

from core.errors import InvalidArgument
from core.loops.preemption import Preemption

if TYPE_CHECKING:
    from core.loops.run import Run

WARNED_EVERY = 10
"""Steps between two looks at a scheduler's warning, where several ranks have to agree and it may come."""


class Limits:
    """The ends of a fit: epochs, steps, time, and the wish to stop; several ranks always end together.

    Looking at what ranks could see differently (the clock, ``trainer.should_stop``) costs an exchange, so several
    ranks do it every ``log_every_n_steps`` steps and at the end of epochs; one alone does it at every step.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._trainer = run, run.trainer
        self.preemption = Preemption(run)
        self.preempted = False
        """Whether the scheduler's warning ended the training, on all ranks."""
        every = run.trainer.log_every_n_steps
        self._look_every = min(every, WARNED_EVERY) if self.preemption.command else every
        self._alone = run.ranks.world_size == 1
        self._deadline = _deadline(run.trainer.max_time)

    @property
    def out_of_steps(self) -> bool:
        """Whether the last optimizer step has come."""
        return 0 <= self._trainer.max_steps <= self._trainer.global_step

    def after_window(self) -> bool:
        """Tell, after an optimizer step, whether the epoch is to be broken off."""
        if self.out_of_steps:
            return True
        due = self._alone or self._trainer.global_step % self._look_every == 0
        return due and self._stop_wanted()

    def before_epoch(self) -> bool:
        """Tell, before an epoch, whether training is over."""
        trainer = self._trainer
        return 0 <= trainer.max_epochs <= trainer.current_epoch or self.out_of_steps or self._stop_wanted()

    def _stop_wanted(self) -> bool:
        trainer = self._trainer
        late = self._deadline is not None and time.monotonic() >= self._deadline
        wish = (trainer.should_stop or late) and self._minimum_reached()
        warned = self.preemption.warned
        if not self._alone:
            flags = torch.tensor([int(wish), int(warned)], device=self._run.device)
            wish, warned = map(bool, self._run.hooks.reduce(flags, "max").tolist())
        self.preempted = self.preempted or warned
        return wish or warned

    def _minimum_reached(self) -> bool:
        trainer = self._trainer
        return trainer.current_epoch >= trainer.min_epochs and trainer.global_step >= trainer.min_steps


def _deadline(max_time: timedelta | None) -> float | None:
    return None if max_time is None else time.monotonic() + max_time.total_seconds()


def validate_every(interval: int | float, total: int | None, whole_epochs: bool) -> int | None:
    """Return after how many batches validation is due, None for the end of the epoch.

    Args:
        interval: ``val_check_interval``.
        total: batches of an epoch, None if unknown.
        whole_epochs: False where validation goes by batches across epochs.

    Raises:
        InvalidArgument: when the interval does not fit the epoch.
    """
    if isinstance(interval, float):
        if interval == 1.0 and whole_epochs:
            return None
        if total is None:
            raise InvalidArgument(
                f"val_check_interval={interval} is a fraction of a loader without a length; give a number of batches"
            )
        return max(1, int(total * interval))
    if whole_epochs and total is not None and interval > total:
        raise InvalidArgument(
            f"val_check_interval={interval} is more than the {total} batches of an epoch\n"
            "  hint: check_val_every_n_epoch=None counts batches across epochs"
        )
    return interval

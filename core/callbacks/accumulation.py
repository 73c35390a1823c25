"""Change the number of micro-batches per optimizer step as training goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import nn

from core.arguments import whole
from core.callbacks.base import Callback
from core.errors import InvalidArgument, InvalidCombination, WrongType
from core.request import Features
from core.rules import Party, violations

if TYPE_CHECKING:
    from core.trainer import Trainer


class GradientAccumulationScheduler(Callback):
    """Sets ``trainer.accumulate_grad_batches`` at the start of epochs.

    Args:
        scheduling: number of micro-batches per step by the epoch, from 0, from which on it holds; before the first of
            them it is 1.

    Raises:
        InvalidArgument: for an empty table, or a number below 1; at the start of fit, when the Trainer was given a
            number of its own.
        InvalidCombination: at the start of fit, where the strategy cannot accumulate.
    """

    def __init__(self, scheduling: Mapping[int, int]) -> None:
        if not isinstance(scheduling, Mapping):
            raise WrongType(f"scheduling must be a dict, not {type(scheduling).__name__} {scheduling!r}")
        if not scheduling:
            raise InvalidArgument("scheduling is empty; give at least one epoch, as in {4: 2}")
        for epoch, window in scheduling.items():
            whole("an epoch of scheduling", epoch, least=0)
            whole(f"scheduling[{epoch}]", window, least=1)
        self.scheduling = {0: 1, **dict(scheduling)}

    def window_at(self, epoch: int) -> int:
        """Return the number of micro-batches per step in ``epoch``."""
        return self.scheduling[max(start for start in self.scheduling if start <= epoch)]

    def setup(self, trainer: Trainer, module: nn.Module, stage: str) -> None:
        if stage != "fit":
            return
        if trainer.accumulate_grad_batches not in (1, *self.scheduling.values()):  # an earlier fit left one of these
            raise InvalidArgument(
                f"accumulate_grad_batches={trainer.accumulate_grad_batches} and a GradientAccumulationScheduler: "
                "give one of them"
            )
        largest = max(self.scheduling.values())
        asked = Features(accumulate_grad_batches=largest).needs()
        party = Party("GradientAccumulationScheduler", needs=tuple(asked), asks=True)
        broken = violations([*trainer.plan.parties, party])
        if broken:
            raise InvalidCombination(f"{trainer.plan.combination}", broken)
        if largest > 1 and not getattr(module, "automatic_optimization", True):
            raise InvalidArgument(
                f"{type(module).__name__} has automatic_optimization = False, so a GradientAccumulationScheduler does "
                "nothing"
            )

    def on_train_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        trainer.accumulate_grad_batches = self.window_at(trainer.current_epoch)

"""Where a run stands."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Progress:
    """The counters of a fit, saved in every checkpoint."""

    epoch: int = 0
    """The running epoch, from 0; it stays the same while the epoch is validated and its end is told."""
    batch: int = 0
    """Micro-batches of the running epoch that are done."""
    global_step: int = 0
    """Optimizer steps that came due, skipped ones included, so that max_steps is reached in any case."""
    skipped_steps: int = 0
    """Those of them that were skipped: scaled gradients were not finite, or no batch of the window had a loss."""
    stepped_in_epoch: bool = False
    """An optimizer has stepped in the running epoch, so that schedulers step at its end."""
    epoch_over: bool = False
    """All batches of the epoch are done, and only its end is left to be told."""

    def next_epoch(self) -> None:
        """Go on to the next epoch."""
        self.epoch, self.batch, self.stepped_in_epoch, self.epoch_over = self.epoch + 1, 0, False, False

    def state_dict(self) -> dict[str, Any]:
        """Return the counters in plain types; an epoch that is over counts as the start of the next."""
        state = asdict(self)
        if self.epoch_over:
            state.update(epoch=self.epoch + 1, batch=0, stepped_in_epoch=False, epoch_over=False)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the counters back."""
        for name, value in state.items():
            setattr(self, name, value)

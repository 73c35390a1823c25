"""The class that people write: an ``nn.Module`` with steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from core.errors import InterlockError

if TYPE_CHECKING:
    from core.trainer import Trainer


class Module(nn.Module):
    """An ``nn.Module`` that the Trainer can run.

    Write ``training_step(batch, batch_idx)`` and ``configure_optimizers()``; add ``validation_step`` and any
    hook of the same name as a :class:`~core.callbacks.Callback` hook, without the first two arguments. Any
    ``nn.Module`` with those methods is accepted too; this class adds ``log`` and the look at the run.
    """

    _trainer: Trainer | None = None

    @property
    def trainer(self) -> Trainer:
        """The Trainer that runs this module.

        Raises:
            InterlockError: outside a run.
        """
        if self._trainer is None:
            raise InterlockError(f"{type(self).__name__} is not attached to a Trainer: it is only inside a run")
        return self._trainer

    @property
    def device(self) -> torch.device:
        """The device of the first parameter or buffer; host memory when there is none."""
        for tensor in (*self.parameters(), *self.buffers()):
            return tensor.device
        return torch.empty(0).device

    @property
    def current_epoch(self) -> int:
        """The running epoch, from 0."""
        return self._trainer.current_epoch if self._trainer else 0

    @property
    def global_step(self) -> int:
        """The number of optimizer steps so far."""
        return self._trainer.global_step if self._trainer else 0

    @property
    def global_rank(self) -> int:
        """This process's number among all processes of the run."""
        return self._trainer.global_rank if self._trainer else 0

    def log(
        self,
        name: str,
        value: Tensor | float,
        prog_bar: bool = False,
        logger: bool = True,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[..., Any] = "mean",
        sync_dist: bool = False,
        batch_size: int | None = None,
    ) -> None:
        """Log one number.

        Args:
            name: under which it appears; both step and epoch values wanted: ``name_step`` and ``name_epoch``.
            value: a number, or a tensor of one element on any device; it is detached, and not read before it is
                shown.
            prog_bar: show it in the progress bar.
            logger: hand it to the loggers.
            on_step: keep the value of each step; by default in training only.
            on_epoch: keep the value over the epoch; by default in evaluation only.
            reduce_fx: over the epoch: ``"mean"`` (weighted by batch size), ``"sum"``, ``"min"`` or ``"max"``.
            sync_dist: bring it together across ranks; every rank must log it.
            batch_size: weight in the mean; by default the first dimension of the batch's first tensor.

        Raises:
            InterlockError: outside a run.
        """
        self.trainer.results.log(name, value, on_step, on_epoch, prog_bar, logger, reduce_fx, sync_dist, batch_size)

    def log_dict(self, values: Mapping[str, Tensor | float], **how: Any) -> None:
        """Log several numbers with the same keywords as :meth:`log`."""
        for name, value in values.items():
            self.log(name, value, **how)

    def print(self, *values: object, **how: Any) -> None:
        """Print on rank 0 only."""
        if self.global_rank == 0:
            print(*values, **how)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trainer": None}

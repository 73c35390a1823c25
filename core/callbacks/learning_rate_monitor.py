"""Log the learning rate of every parameter group."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from torch import nn
from torch.optim import Optimizer

from core.arguments import flag
from core.callbacks.base import Callback
from core.errors import InvalidArgument

if TYPE_CHECKING:
    from core.trainer import Trainer


class LearningRateMonitor(Callback):
    """Hands the learning rates of a step to the loggers, under ``lr-<optimizer>``, or the scheduler's own name.

    A second optimizer of one class gets ``-1``, and where an optimizer has several parameter groups ``/pg1`` and so on
    is appended, or the group's own ``name``.

    Args:
        logging_interval: ``"step"`` every ``log_every_n_steps`` steps, ``"epoch"`` at the start of epochs; None as
            often as the scheduler steps, and both where there is no scheduler.
        log_momentum: also ``-momentum``, or the first beta of Adam and its kin.
        log_weight_decay: also ``-weight_decay``.
    """

    def __init__(
        self,
        logging_interval: Literal["step", "epoch"] | None = None,
        log_momentum: bool = False,
        log_weight_decay: bool = False,
    ) -> None:
        if logging_interval not in (None, "step", "epoch"):
            raise InvalidArgument(f"logging_interval={logging_interval!r} must be 'step', 'epoch' or None")
        self.logging_interval = logging_interval
        self.log_momentum = flag("log_momentum", log_momentum)
        self.log_weight_decay = flag("log_weight_decay", log_weight_decay)
        self.lrs: dict[str, list[float]] = {}
        """What was logged, by name."""
        self._used: dict[str, float] = {}

    def on_train_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._used = {}

    def on_train_batch_start(self, trainer: Trainer, module: nn.Module, batch: Any, batch_idx: int) -> None:
        due = (trainer.global_step + 1) % trainer.log_every_n_steps == 0
        if due and self.logging_interval != "epoch":
            self._used = self._read(trainer, "step")  # the scheduler may change them before the step is logged

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._used and trainer.global_step % trainer.log_every_n_steps == 0:
            self._log(trainer, self._used)
            self._used = {}

    def on_train_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        if self.logging_interval != "step":
            self._log(trainer, self._read(trainer, "epoch"))

    def _log(self, trainer: Trainer, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.lrs.setdefault(name, []).append(value)
        trainer._metrics.update(values)
        trainer.log_to_loggers(values)

    def _read(self, trainer: Trainer, interval: str) -> dict[str, float]:
        intervals = {id(c.scheduler.optimizer): c.interval for c in trainer.lr_scheduler_configs if _has_optimizer(c)}
        values: dict[str, float] = {}
        for name, optimizer in self._names(trainer).items():
            follows = intervals.get(id(optimizer))
            if self.logging_interval is None and follows not in (None, interval):
                continue
            for number, group in enumerate(optimizer.param_groups, start=1):
                suffix = f"/{group.get('name', f'pg{number}')}" if len(optimizer.param_groups) > 1 else ""
                values |= self._of_group(name, suffix, group)
        return values

    def _of_group(self, name: str, suffix: str, group: dict[str, Any]) -> dict[str, float]:
        values = {f"{name}{suffix}": float(group["lr"])}
        if self.log_momentum:
            momentum = group.get("momentum", group.get("betas", (0.0,))[0])
            values[f"{name}-momentum{suffix}"] = float(momentum)
        if self.log_weight_decay:
            values[f"{name}-weight_decay{suffix}"] = float(group.get("weight_decay", 0.0))
        return values

    def _names(self, trainer: Trainer) -> dict[str, Optimizer]:
        """Return the optimizers by the names that they are logged under."""
        given = {id(c.scheduler.optimizer): c.name for c in trainer.lr_scheduler_configs if _has_optimizer(c)}
        named: dict[str, Optimizer] = {}
        seen: Counter[str] = Counter()
        for optimizer in trainer.optimizers:
            # a strategy's optimizer that holds the user's inside is known by the latter's name
            kind = type(getattr(optimizer, "optim", optimizer)).__name__
            name = given.get(id(optimizer)) or f"lr-{kind}"
            named[f"{name}-{seen[name]}" if seen[name] else name] = optimizer
            seen[name] += 1
        return named


def _has_optimizer(config: Any) -> bool:
    return hasattr(config.scheduler, "optimizer")

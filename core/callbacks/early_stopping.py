"""End training when a metric gets no better."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from core.arguments import choice, flag, whole
from core.callbacks.base import Callback
from core.callbacks.moments import looks_at_epoch_end, say
from core.errors import InvalidArgument

if TYPE_CHECKING:
    from core.trainer import Trainer


class EarlyStopping(Callback):
    """Stop when ``monitor`` has not improved for a while; rank 0's value decides for all ranks.

    Args:
        monitor: the metric.
        min_delta: a smaller change is no improvement.
        patience: so many looks without improvement in a row end training.
        verbose: say on standard error when it improves, and why training ends.
        mode: ``"min"`` or ``"max"``.
        strict: an error where the metric was not logged; False passes over it.
        check_finite: stop when it is NaN or infinite.
        stopping_threshold: stop as soon as it is better than this.
        divergence_threshold: stop as soon as it is worse than this.
        check_on_train_epoch_end: True looks at the end of training epochs, False when validation is over; None finds
            out which of them is the end of an epoch.
        log_rank_zero_only: accepted and without effect: rank 0 alone speaks.

    Raises:
        InvalidArgument: for a value outside its range; during training, when ``monitor`` was not logged.
    """

    after_module = True

    def __init__(
        self,
        monitor: str,
        min_delta: float = 0.0,
        patience: int = 3,
        verbose: bool = False,
        mode: str = "min",
        strict: bool = True,
        check_finite: bool = True,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        check_on_train_epoch_end: bool | None = None,
        log_rank_zero_only: bool = False,
    ) -> None:
        self.monitor = monitor
        self.min_delta = abs(min_delta)
        self.patience = whole("patience", patience, least=0)
        self.verbose = flag("verbose", verbose)
        self.mode = choice("mode", mode, ("min", "max"))
        self.strict, self.check_finite = flag("strict", strict), flag("check_finite", check_finite)
        self.stopping_threshold, self.divergence_threshold = stopping_threshold, divergence_threshold
        self.check_on_train_epoch_end = check_on_train_epoch_end
        self.log_rank_zero_only = log_rank_zero_only
        self.wait_count = 0
        """Looks since the last improvement."""
        self.stopped_epoch = 0
        """The epoch in which it ended training, 0 if it has not."""
        self.stopping_reason = ""
        """Why it ended training."""
        self.best_score = torch.tensor(math.inf if mode == "min" else -math.inf)
        self._fitting = False

    @property
    def state_key(self) -> str:
        return f"{type(self).__qualname__}[{self.monitor},{self.mode}]"

    def state_dict(self) -> dict[str, Any]:
        names = ("wait_count", "stopped_epoch", "best_score", "patience")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.wait_count, self.stopped_epoch = state_dict["wait_count"], state_dict["stopped_epoch"]
        self.best_score = torch.as_tensor(state_dict["best_score"])

    def on_train_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._fitting = True

    def on_train_end(self, trainer: Trainer, module: nn.Module) -> None:
        self._fitting = False

    def on_exception(self, trainer: Trainer, module: nn.Module, exception: BaseException) -> None:
        self._fitting = False

    def on_validation_end(self, trainer: Trainer, module: nn.Module) -> None:
        if self._fitting and not looks_at_epoch_end(trainer, self.check_on_train_epoch_end):
            self._look(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        if looks_at_epoch_end(trainer, self.check_on_train_epoch_end):
            self._look(trainer)

    def _look(self, trainer: Trainer) -> None:
        metrics = trainer.callback_metrics
        own = metrics.get(self.monitor)
        score: Tensor | None = trainer.broadcast(own if trainer.is_global_zero else None)
        if score is None:
            known = ", ".join(sorted(metrics)) or "none"
            text = f"EarlyStopping monitors {self.monitor!r}, which was not logged; logged: {known}"
            if self.strict:
                raise InvalidArgument(f"{text}\n  hint: strict=False passes over epochs without it")
            trainer.warn(text)
            return
        reason = self._judge(score)
        if reason:
            trainer.should_stop = True
            self.stopped_epoch, self.stopping_reason = trainer.current_epoch, reason
        if self.verbose:
            improved = "" if self.wait_count else f"{self.monitor} improved to {score:.6g}"
            if reason or improved:
                say(trainer, f"epoch {trainer.current_epoch}: {reason or improved}")

    def _judge(self, score: Tensor) -> str:
        """Take one value into account, and return why training is to end, "" to go on."""
        value, name = float(score), f"{self.monitor} = {float(score):.6g}"
        if self.check_finite and not math.isfinite(value):
            return f"{name} is not finite; the best was {float(self.best_score):.6g}"
        if self.stopping_threshold is not None and self._better(value, self.stopping_threshold):
            return f"{name} is better than the stopping threshold {self.stopping_threshold}"
        if self.divergence_threshold is not None and self._better(self.divergence_threshold, value):
            return f"{name} is worse than the divergence threshold {self.divergence_threshold}"
        margin = self.min_delta if self.mode == "max" else -self.min_delta
        if self._better(value, float(self.best_score) + margin):
            self.best_score, self.wait_count = score, 0
            return ""
        self.wait_count += 1
        if self.wait_count < self.patience:
            return ""
        return f"{self.monitor} did not improve {self.wait_count} times; the best was {float(self.best_score):.6g}"

    def _better(self, value: float, than: float) -> bool:
        return value < than if self.mode == "min" else value > than

"""Keep an average of the weights, validate with it, and end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from core.arguments import flag, whole
from core.callbacks.base import Callback
from core.callbacks.running_average import RunningAverage, refuse_parts
from core.errors import InvalidArgument

if TYPE_CHECKING:
    from core.trainer import Trainer

CURRENT = "current_model_state"
"""Where a checkpoint keeps the weights that training goes on with; its ``state_dict`` holds the average."""


class WeightAveraging(Callback):
    """Averages the weights after steps; the module validates with the average, and holds it when training is over.

    Checkpoints hold the average as their weights, so that what loads them predicts with it, and beside it what resuming
    needs. Before the first update everything is as without this callback. A subclass says in :meth:`should_update`
    when the average is updated.

    Args:
        device: where the average is kept; None where the module is.
        use_buffers: average buffers too; False copies them.
        kwargs: ``avg_fn`` or ``multi_avg_fn`` of :class:`torch.optim.swa_utils.AveragedModel`.
    """

    def __init__(self, device: torch.device | str | int | None = None, use_buffers: bool = True, **kwargs: Any) -> None:
        self._device, self._use_buffers, self._how = device, flag("use_buffers", use_buffers), kwargs
        self._average: RunningAverage | None = None
        self._swapped = False
        self._seen_step = 0
        self._count = 0
        self._loaded: dict[str, Any] | None = None

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Say whether to update: after step ``step_idx``, or at the end of epoch ``epoch_idx``, both from 0."""
        return step_idx is not None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_average": None}

    def state_dict(self) -> dict[str, Any]:
        return {"count": self._average.count if self._average is not None else self._count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._count = state_dict["count"]

    # ------------------------------------------------------------------ training

    def setup(self, trainer: Trainer, module: nn.Module, stage: str) -> None:
        if stage != "fit":
            return
        averaging = [type(each).__name__ for each in trainer.callbacks if isinstance(each, WeightAveraging)]
        if len(averaging) > 1:
            raise InvalidArgument(f"{' and '.join(averaging)} would both change the weights for validation; take one")
        self._average, self._count, self._swapped, self._loaded = None, 0, False, None

    def on_fit_start(self, trainer: Trainer, module: nn.Module) -> None:
        refuse_parts(module)

    def on_train_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._seen_step = trainer.global_step
        loaded, self._loaded = self._loaded, None
        if loaded is not None and self._count:
            self._make(module).load_state_dict(loaded, self._count)

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if step != self._seen_step:
            self._seen_step = step
            if self.should_update(step_idx=step - 1):
                self._make(module).update()

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        if self.should_update(epoch_idx=trainer.current_epoch):
            self._make(module).update()

    def on_train_end(self, trainer: Trainer, module: nn.Module) -> None:
        if self._average is not None:
            self._average.copy_to_module()

    def _make(self, module: nn.Module) -> RunningAverage:
        """Return the average, made when it is first needed: lazy parameters have their sizes by then."""
        if self._average is None:
            self._average = RunningAverage(module, self._device, self._use_buffers, **self._how)
        return self._average

    # ------------------------------------------------------------------ validation

    def on_validation_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        if self._average is not None and not self._swapped:
            self._average.swap()
            self._swapped = True

    def on_validation_end(self, trainer: Trainer, module: nn.Module) -> None:
        self._swap_back()

    def on_exception(self, trainer: Trainer, module: nn.Module, exception: BaseException) -> None:
        self._swap_back()

    def _swap_back(self) -> None:
        if self._average is not None and self._swapped:
            self._average.swap()
        self._swapped = False

    def teardown(self, trainer: Trainer, module: nn.Module, stage: str) -> None:
        if stage == "fit" and self._average is not None:
            self._count = self._average.count

    # ------------------------------------------------------------------ checkpoints

    def on_save_checkpoint(self, trainer: Trainer, module: nn.Module, checkpoint: dict[str, Any]) -> None:
        if self._average is None:
            return
        other, module_holds = self._average.state_dict(), checkpoint["state_dict"]
        average, current = (module_holds, {**module_holds, **other}) if self._swapped else (other, module_holds)
        checkpoint["state_dict"] = {**module_holds, **average}
        checkpoint[CURRENT] = current

    def on_load_checkpoint(self, trainer: Trainer, module: nn.Module, checkpoint: dict[str, Any]) -> None:
        if CURRENT in checkpoint:
            self._loaded, checkpoint["state_dict"] = checkpoint["state_dict"], checkpoint[CURRENT]


class EMAWeightAveraging(WeightAveraging):
    """An exponential moving average: after each update ``average = decay * average + (1 - decay) * weights``.

    Args:
        device: where the average is kept; None where the module is.
        use_buffers: average buffers too; False copies them.
        decay: how much of the average stays.
        update_every_n_steps: update after every n-th step.
        update_starting_at_step: not before this step.
        update_starting_at_epoch: update also at the end of epochs, from this one on.
    """

    def __init__(
        self,
        device: torch.device | str | int | None = None,
        use_buffers: bool = True,
        decay: float = 0.999,
        update_every_n_steps: int = 1,
        update_starting_at_step: int | None = None,
        update_starting_at_epoch: int | None = None,
        **kwargs: Any,
    ) -> None:
        if not 0.0 <= decay <= 1.0:
            raise InvalidArgument(f"decay={decay} must be from 0.0 to 1.0")
        super().__init__(device, use_buffers, **{"multi_avg_fn": get_ema_multi_avg_fn(decay), **kwargs})  # type: ignore[no-untyped-call]
        self.decay = decay
        self.update_every_n_steps = whole("update_every_n_steps", update_every_n_steps, least=1)
        self.update_starting_at_step = update_starting_at_step
        self.update_starting_at_epoch = update_starting_at_epoch

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        if step_idx is not None:
            return step_idx >= (self.update_starting_at_step or 0) and step_idx % self.update_every_n_steps == 0
        start = self.update_starting_at_epoch
        return epoch_idx is not None and start is not None and epoch_idx >= start

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_how": {}}  # its function is a closure, which does not travel

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._how = {"multi_avg_fn": get_ema_multi_avg_fn(self.decay)}  # type: ignore[no-untyped-call]

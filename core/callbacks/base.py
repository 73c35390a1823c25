"""The hooks that a callback may fill. All do nothing here, and a hook that nobody fills is never called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from core.callbacks.logging import log, log_dict

if TYPE_CHECKING:
    from core.trainer import Trainer


class Callback:
    """Fill any of these methods. For each point the callbacks run in their order, then the module's own method.

    The module's method of the same name takes the same arguments without ``trainer`` and ``module``.
    """

    after_module = False
    """Whether it runs after the module's own hook of the same name, to keep what that did."""

    @property
    def state_key(self) -> str:
        """The key of this callback's state in a checkpoint; two callbacks of one class need different ones."""
        return type(self).__qualname__

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of this callback, in plain types and tensors."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""

    def log(self, name: str, value: Any, *how: Any, **named: Any) -> None:
        """Log one number in a run; with the arguments of :meth:`core.module.Module.log`."""
        log(name, value, *how, **named)

    def log_dict(self, dictionary: Mapping[str, Any], *how: Any, **named: Any) -> None:
        """Log several numbers, each as :meth:`log` does."""
        log_dict(dictionary, *how, **named)

    def setup(self, trainer: Trainer, module: nn.Module, stage: str) -> None:
        """The run begins in this process; ``stage`` is ``"fit"`` or ``"validate"``."""

    def teardown(self, trainer: Trainer, module: nn.Module, stage: str) -> None:
        """The run ends in this process, also after an error."""

    def on_exception(self, trainer: Trainer, module: nn.Module, exception: BaseException) -> None:
        """The run was broken off by ``exception``."""

    def on_fit_start(self, trainer: Trainer, module: nn.Module) -> None:
        """Model and optimizers are ready, nothing is trained yet."""

    def on_fit_end(self, trainer: Trainer, module: nn.Module) -> None:
        """All is trained."""

    def on_train_start(self, trainer: Trainer, module: nn.Module) -> None:
        """The first epoch is about to begin; a checkpoint has been loaded."""

    def on_train_end(self, trainer: Trainer, module: nn.Module) -> None:
        """The last epoch is over."""

    def on_train_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        """An epoch begins."""

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        """An epoch is over, its validation included."""

    def on_train_batch_start(self, trainer: Trainer, module: nn.Module, batch: Any, batch_idx: int) -> None:
        """A micro-batch is on the device."""

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A micro-batch is done.

        ``outputs`` is a dict of what ``training_step`` returned, its ``"loss"`` detached and divided by the size of the
        window, as backward ran on it; an empty one where there was no loss.
        """

    def on_before_backward(self, trainer: Trainer, module: nn.Module, loss: Tensor) -> None:
        """``loss``, a scalar divided by the window's size, is about to be differentiated."""

    def on_after_backward(self, trainer: Trainer, module: nn.Module) -> None:
        """Gradients of a micro-batch are there, still scaled where the precision scales."""

    def on_before_optimizer_step(self, trainer: Trainer, module: nn.Module, optimizer: Optimizer) -> None:
        """Gradients of a window are unscaled and not yet clipped."""

    def on_before_zero_grad(self, trainer: Trainer, module: nn.Module, optimizer: Optimizer) -> None:
        """Gradients of a window are about to be set to None."""

    def on_validation_start(self, trainer: Trainer, module: nn.Module) -> None:
        """Validation begins; the module is in eval mode."""

    def on_validation_end(self, trainer: Trainer, module: nn.Module) -> None:
        """Validation is over and its metrics are known."""

    def on_validation_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        """The loaders are about to be read."""

    def on_validation_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        """The loaders are read; values may still be logged."""

    def on_validation_batch_start(
        self, trainer: Trainer, module: nn.Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A batch of validation is on the device."""

    def on_validation_batch_end(
        self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A batch of validation is done."""

    def on_sanity_check_start(self, trainer: Trainer, module: nn.Module) -> None:
        """A few batches of validation are about to be tried before training."""

    def on_sanity_check_end(self, trainer: Trainer, module: nn.Module) -> None:
        """They were tried."""

    def on_test_start(self, trainer: Trainer, module: nn.Module) -> None:
        """Testing begins; the module is in eval mode."""

    def on_test_end(self, trainer: Trainer, module: nn.Module) -> None:
        """Testing is over and its metrics are known."""

    def on_test_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        """The loaders are about to be read."""

    def on_test_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        """The loaders are read; values may still be logged."""

    def on_test_batch_start(
        self, trainer: Trainer, module: nn.Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A batch of testing is on the device."""

    def on_test_batch_end(
        self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A batch of testing is done."""

    def on_predict_start(self, trainer: Trainer, module: nn.Module) -> None:
        """Prediction begins; the module is in eval mode."""

    def on_predict_end(self, trainer: Trainer, module: nn.Module) -> None:
        """Prediction is over."""

    def on_predict_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        """The loaders are about to be read."""

    def on_predict_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        """The loaders are read."""

    def on_predict_batch_start(
        self, trainer: Trainer, module: nn.Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A batch of prediction is on the device."""

    def on_predict_batch_end(
        self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A batch is predicted; ``outputs`` is what ``predict_step`` returned."""

    def on_save_checkpoint(self, trainer: Trainer, module: nn.Module, checkpoint: dict[str, Any]) -> None:
        """``checkpoint`` is about to be written; add to it in plain types and tensors.

        Every rank is asked, so that they can exchange something; what rank 0 has in it is written.
        """

    def on_load_checkpoint(self, trainer: Trainer, module: nn.Module, checkpoint: dict[str, Any]) -> None:
        """``checkpoint`` was read and is about to be restored."""

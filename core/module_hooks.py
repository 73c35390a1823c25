"""The hooks of a module that do nothing until their author fills them.

They are here so that an override can call ``super()``; the loops call those only that somebody wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from core.data.nested import map_tensors

if TYPE_CHECKING:
    import torch

    from core.callbacks import Callback


class TransferHooks:
    """What a batch goes through on its way to the device: the data module's first, then the module's."""

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Change a batch before it moves."""
        return batch

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move a batch; override it for types that torch does not know."""
        return map_tensors(batch, lambda tensor: tensor.to(device))

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Change a batch on the device."""
        return batch


class ModuleHooks(TransferHooks):
    """Hooks of the same names as a callback's, without its first two arguments, and a few of a module's own."""

    def configure_callbacks(self) -> Sequence[Callback] | Callback:
        """Return callbacks of the module's own; one of a kind that the Trainer has takes its place."""
        return []

    def configure_model(self) -> None:
        """Make layers in the process that trains them; called after ``setup``, in each run."""

    def prepare_data(self) -> None:
        """Download and write: called in one process per node."""

    def setup(self, stage: str) -> None:
        """A stage is about to begin: ``"fit"``, ``"validate"``, ``"test"`` or ``"predict"``."""

    def teardown(self, stage: str) -> None:
        """A stage is over, however it ended."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """``checkpoint`` is about to be written; called on every rank, and what rank 0 has in it is written."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """``checkpoint`` was read and is about to be restored."""

    # ------------------------------------------------------------------ training

    def on_fit_start(self) -> None:
        """The optimizers are made, and a checkpoint is restored if one was given."""

    def on_fit_end(self) -> None:
        """Training is over."""

    def on_train_start(self) -> None:
        """The first epoch is about to begin."""

    def on_train_end(self) -> None:
        """The last epoch is over."""

    def on_train_epoch_start(self) -> None:
        """An epoch begins."""

    def on_train_epoch_end(self) -> None:
        """An epoch is over and validated; values may still be logged."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """A batch is on the device; return -1 to end the epoch before it."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch is done; ``outputs`` is what a callback is told."""

    def on_before_zero_grad(self, optimizer: Optimizer) -> None:
        """Gradients are about to go."""

    def on_before_backward(self, loss: Tensor) -> None:
        """Backward is about to run, on a loss divided by the window's size."""

    def on_after_backward(self) -> None:
        """Gradients are there, scaled where the precision scales them."""

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Gradients are unscaled and not clipped yet."""

    # ------------------------------------------------------------------ evaluation

    def on_validation_model_zero_grad(self) -> None:
        """Validation is about to begin inside a fit."""

    def on_validation_model_eval(self) -> None:
        """The module is in eval mode; called before anything else of validation."""

    def on_validation_model_train(self) -> None:
        """The parts of the module are in the modes that they had before validation."""

    def on_validation_start(self) -> None:
        """Validation begins."""

    def on_validation_end(self) -> None:
        """Validation is over."""

    def on_validation_epoch_start(self) -> None:
        """The loaders are about to be read."""

    def on_validation_epoch_end(self) -> None:
        """The loaders are read; values may still be logged."""

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A batch of validation is on the device."""

    def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A batch of validation is done."""

    def on_test_model_eval(self) -> None:
        """The module is in eval mode; called before anything else of testing."""

    def on_test_model_train(self) -> None:
        """The parts of the module are in the modes that they had before testing."""

    def on_test_start(self) -> None:
        """Testing begins."""

    def on_test_end(self) -> None:
        """Testing is over."""

    def on_test_epoch_start(self) -> None:
        """The loaders are about to be read."""

    def on_test_epoch_end(self) -> None:
        """The loaders are read; values may still be logged."""

    def on_test_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A batch of testing is on the device."""

    def on_test_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A batch of testing is done."""

    def on_predict_model_eval(self) -> None:
        """The module is in eval mode; called before anything else of prediction."""

    def on_predict_start(self) -> None:
        """Prediction begins."""

    def on_predict_end(self) -> None:
        """Prediction is over."""

    def on_predict_epoch_start(self) -> None:
        """The loaders are about to be read."""

    def on_predict_epoch_end(self) -> None:
        """The loaders are read."""

    def on_predict_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A batch of prediction is on the device."""

    def on_predict_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """A batch of prediction is done."""

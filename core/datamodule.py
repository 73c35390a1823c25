"""Data and its preparation in one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.hyperparameters import HyperparametersMixin

if TYPE_CHECKING:
    from core.trainer import Trainer


class DataModule(HyperparametersMixin):
    """Write the loaders you have; ``prepare_data`` runs once per node, ``setup`` in every process.

    Loaders are ``train_dataloader()``, ``val_dataloader()``, ``test_dataloader()`` and ``predict_dataloader()``.
    The transfer hooks of a module work here too, and come before the module's.
    """

    trainer: Trainer | None = None
    prepare_data_per_node = True

    def prepare_data(self) -> None:
        """Download and write: called in one process per node, so set no attributes here."""

    def setup(self, stage: str) -> None:
        """Make datasets: called in every process; ``stage`` is "fit", "validate", "test" or "predict"."""

    def teardown(self, stage: str) -> None:
        """Clean up: called in every process at the end of a stage."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, in plain types and tensors."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""

    def on_exception(self, exception: BaseException) -> None:
        """The run was broken off by ``exception``."""

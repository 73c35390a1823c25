"""Data and its preparation in one object."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from core.hyperparameters import HyperparametersMixin
from core.module_hooks import TransferHooks

if TYPE_CHECKING:
    from typing_extensions import Self

    from core.trainer import Trainer


class DataModule(TransferHooks, HyperparametersMixin):
    """Write the loaders you have; ``prepare_data`` runs once per node, ``setup`` in every process.

    Loaders are ``train_dataloader()``, ``val_dataloader()``, ``test_dataloader()`` and ``predict_dataloader()``.
    The transfer hooks of a module work here too, and come before the module's.
    """

    trainer: Trainer | None = None
    prepare_data_per_node = True
    """False: prepare data once in all, for nodes that share their files."""

    def prepare_data(self) -> None:
        """Download and write: called in one process per node, so set no attributes here."""

    def setup(self, stage: str) -> None:
        """Make datasets: called in every process; ``stage`` is "fit", "validate", "test" or "predict"."""

    def teardown(self, stage: str) -> None:
        """Clean up: called in every process at the end of a stage."""

    @classmethod
    def from_datasets(
        cls,
        train_dataset: Any = None,
        val_dataset: Any = None,
        test_dataset: Any = None,
        predict_dataset: Any = None,
        batch_size: int = 1,
        num_workers: int = 0,
        **datamodule_kwargs: Any,
    ) -> Self:
        """Make a data module that reads datasets: one for each purpose, or a list of them for evaluation.

        The training loader shuffles, unless its dataset is iterable.
        """
        made = cls(**datamodule_kwargs)
        given = {"train": train_dataset, "val": val_dataset, "test": test_dataset, "predict": predict_dataset}
        for what, dataset in given.items():
            if dataset is not None:
                # a partial, for the data module travels to spawned processes
                setattr(made, f"{what}_dataloader", partial(_loader, dataset, batch_size, num_workers, what == "train"))
        return made

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, in plain types and tensors."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""

    def on_exception(self, exception: BaseException) -> None:
        """The run was broken off by ``exception``."""


def _loader(dataset: Any, batch_size: int, num_workers: int, shuffle: bool) -> Any:
    if isinstance(dataset, list | tuple):
        return [_loader(each, batch_size, num_workers, shuffle) for each in dataset]
    shuffle = shuffle and not isinstance(dataset, IterableDataset)
    return DataLoader(dataset, batch_size, shuffle=shuffle, num_workers=num_workers)

"""Write predictions to disk while they are made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.utils.data import DataLoader, SequentialSampler

from core.arguments import choice
from core.callbacks.base import Callback
from core.data.nested import detach_to_host
from core.data.sharding import EvaluationSampler

if TYPE_CHECKING:
    from core.trainer import Trainer

Indices = list[int] | None
"""The places of a batch's samples in the dataset; None where the order is not known beforehand."""


class BasePredictionWriter(Callback):
    """Fill :meth:`write_on_batch_end`, :meth:`write_on_epoch_end`, or both; each rank writes what it predicted.

    With ``trainer.predict(..., return_predictions=False)`` nothing is kept in memory beyond what the writer keeps.

    Args:
        write_interval: ``"batch"``, ``"epoch"`` or ``"batch_and_epoch"``.
    """

    def __init__(self, write_interval: Literal["batch", "epoch", "batch_and_epoch"] = "batch") -> None:
        self.write_interval = choice("write_interval", write_interval, ("batch", "epoch", "batch_and_epoch"))
        self._predictions: list[list[Any]] = []
        self._indices: list[list[Indices]] = []
        self._orders: list[Iterator[Sequence[int]] | None] = []

    def write_on_batch_end(
        self,
        trainer: Trainer,
        module: nn.Module,
        prediction: Any,
        batch_indices: Indices,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Write one batch; ``batch_indices`` are the places of its samples in the dataset, None if not known."""

    def write_on_epoch_end(
        self, trainer: Trainer, module: nn.Module, predictions: list[list[Any]], batch_indices: list[list[Indices]]
    ) -> None:
        """Write everything: both lists go by loader, then by batch."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_predictions": [], "_indices": [], "_orders": []}

    def on_predict_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        loaders = trainer.predict_dataloaders
        self._orders = [_order(loader) for loader in loaders]
        self._predictions = [[] for _ in loaders]
        self._indices = [[] for _ in loaders]

    def on_predict_batch_end(
        self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        order = self._orders[dataloader_idx]
        indices = None if order is None else list(next(order))
        if self.write_interval != "epoch":
            self.write_on_batch_end(trainer, module, outputs, indices, batch, batch_idx, dataloader_idx)
        if self.write_interval != "batch":
            self._predictions[dataloader_idx].append(outputs)
            self._indices[dataloader_idx].append(indices)

    def on_predict_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        predictions, indices = self._predictions, self._indices
        self._predictions, self._indices, self._orders = [], [], []
        if self.write_interval != "batch":
            self.write_on_epoch_end(trainer, module, predictions, indices)


class PredictionWriter(BasePredictionWriter):
    """Saves predictions with ``torch.save``, tensors in host memory, for ``torch.load``.

    By batch: ``<output_dir>/loader_<i>/rank_<r>_batch_<n>.pt``; by epoch: ``<output_dir>/predictions_rank_<r>.pt``.
    Each file holds a dictionary with ``predictions`` and ``indices``, the places of the samples in the dataset.

    Args:
        output_dir: folder.
        write_interval: ``"batch"``, ``"epoch"`` or ``"batch_and_epoch"``.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        write_interval: Literal["batch", "epoch", "batch_and_epoch"] = "epoch",
    ) -> None:
        super().__init__(write_interval)
        self.output_dir = Path(output_dir)

    def write_on_batch_end(
        self,
        trainer: Trainer,
        module: nn.Module,
        prediction: Any,
        batch_indices: Indices,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        path = self.output_dir / f"loader_{dataloader_idx}" / f"rank_{trainer.global_rank}_batch_{batch_idx}.pt"
        _save(path, prediction, batch_indices)

    def write_on_epoch_end(
        self, trainer: Trainer, module: nn.Module, predictions: list[list[Any]], batch_indices: list[list[Indices]]
    ) -> None:
        _save(self.output_dir / f"predictions_rank_{trainer.global_rank}.pt", predictions, batch_indices)


def _save(path: Path, predictions: Any, indices: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.partial")
    torch.save({"predictions": detach_to_host(predictions), "indices": indices}, beside)
    os.replace(beside, path)


def _order(loader: Any) -> Iterator[Sequence[int]] | None:
    """Return the places of each batch's samples, where they can be told without drawing random numbers."""
    if not isinstance(loader, DataLoader) or loader.batch_sampler is None:
        return None
    if type(loader.sampler) in (SequentialSampler, EvaluationSampler):
        return iter(loader.batch_sampler)
    return None

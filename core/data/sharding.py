"""Give each rank its own part of a loader's samples."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from core.errors import InvalidArgument
from core.hookspecs import Shard
from core.seed import WorkerSeed


class EvaluationSampler(Sampler[int]):
    """Every ``num_replicas``-th sample from ``rank`` on, none twice: ranks may get one sample more or less."""

    def __init__(self, length: int, shard: Shard) -> None:
        self._indices = range(shard.rank, length, shard.num_replicas)

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


def shard_loader(loader: Any, shard: Shard, *, train: bool, seed: int, name: str) -> Any:
    """Return a loader over this rank's part of the data; ``loader`` itself where there is nothing to do.

    In training each rank gets the same number of samples (the last few may be given twice) in a new order each
    epoch where ``loader`` shuffles; in evaluation each sample is given once. A loader that is not a DataLoader, one
    over an iterable dataset, and one with a DistributedSampler are the user's to shard and are returned as they are.

    Raises:
        InvalidArgument: for a sampler of the user's own, which would have to be replaced.
    """
    whole = shard.num_replicas == 1 and not shard.shared
    if whole or not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    batch_sampler, sampler = loader.batch_sampler, loader.sampler
    if isinstance(sampler, DistributedSampler) or isinstance(
        getattr(batch_sampler, "sampler", None), DistributedSampler
    ):
        return loader
    _refuse_own(sampler, batch_sampler, name)
    length = len(loader.dataset)  # type: ignore[arg-type]  # a map-style dataset has a length
    own: Sampler[int]
    if train:
        shuffle = isinstance(sampler, RandomSampler)
        own = DistributedSampler(loader.dataset, shard.num_replicas, shard.rank, shuffle=shuffle, seed=seed)
    else:
        own = EvaluationSampler(length, shard)
    return with_sampler(loader, own)


def _refuse_own(sampler: Any, batch_sampler: Any, name: str) -> None:
    own = None
    if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
        own = batch_sampler
    elif type(sampler) is RandomSampler:
        own = sampler if sampler.replacement or sampler._num_samples is not None else None
    elif type(sampler) is not SequentialSampler:
        own = sampler
    if own is not None:
        raise InvalidArgument(
            f"{name} has a {type(own).__name__}, which would have to be replaced to give each rank its own samples\n"
            "  hint: give it a torch.utils.data.DistributedSampler, or make each rank's loader yourself and pass "
            "Trainer(use_distributed_sampler=False)"
        )


def with_sampler(loader: DataLoader[Any], sampler: Sampler[int]) -> DataLoader[Any]:
    """Copy the loader with another sampler.

    The copy is changed through its dictionary: DataLoader forbids setting these attributes, and building a new one
    would lose what a subclass's constructor does not show.
    """
    twin = copy.copy(loader)
    twin.__dict__["sampler"] = sampler
    if loader.batch_sampler is not None:
        batches = BatchSampler(sampler, loader.batch_size or 1, loader.drop_last)
        twin.__dict__["batch_sampler"] = batches
    twin.__dict__["_iterator"] = None  # persistent workers of the original stay with it
    return twin


def with_worker_seed(loader: Any, rank: int) -> Any:
    """Copy the loader so that its workers are seeded by ``rank`` too, unless it has no workers or seeds them itself."""
    if not isinstance(loader, DataLoader) or not loader.num_workers or loader.worker_init_fn is not None:
        return loader
    twin = copy.copy(loader)
    twin.__dict__["worker_init_fn"] = WorkerSeed(rank)
    twin.__dict__["_iterator"] = None  # persistent workers of the original stay with it
    return twin


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell every sampler of the loader, and its dataset, which epoch begins."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    parts = [getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
    parts.append(getattr(loader, "dataset", None))
    told: list[int] = []
    for part in parts:
        tell = getattr(part, "set_epoch", None)
        if callable(tell) and id(part) not in told:
            told.append(id(part))
            tell(epoch)

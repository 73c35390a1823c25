"""Read a loader: quickly, from any position, and knowing which batch ends a window.

``DataLoader.__next__`` spends most of its own time on a profiler range. For the plain case, a loader without
workers over a map-style dataset, the same batches come from its public parts, in the same order and with the
same draws of random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from core.errors import InterlockError


class Micro(NamedTuple):
    """One micro-batch and its place: the real size of its window, and whether it ends the window and the epoch."""

    batch: Any
    window: int
    ends_window: bool
    ends_epoch: bool


def length_of(loader: Any) -> int | None:
    """Return how many batches the loader has, or None if it does not say or only guesses.

    The length of an iterable dataset is its author's guess: a window's size cannot rest on it.
    """
    if isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset):
        return None
    try:
        return len(loader)
    except TypeError:
        return None


def read(loader: Any, skip: int = 0) -> Iterator[Any]:
    """Return the batches of one epoch from number ``skip`` on; where possible those before are not even made.

    The order is drawn, and the skipping done, before this returns.
    """
    if isinstance(loader, DataLoader) and _is_plain(loader):
        return _read_plain(loader, skip)
    batches: Iterator[Any] = iter(loader)
    for _ in islice(batches, skip):
        pass
    return batches


def _is_plain(loader: DataLoader[Any]) -> bool:
    return (
        type(loader).__iter__ is DataLoader.__iter__
        and loader.num_workers == 0
        and not loader.pin_memory
        and not isinstance(loader.dataset, IterableDataset)
        and hasattr(loader.dataset, "__getitem__")
        and not hasattr(loader.dataset, "register_datapipe_as_function")
    )


def _read_plain(loader: DataLoader[Any], skip: int) -> Iterator[Any]:
    indices = iter(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)
    # torch draws a seed for workers here even when there are none; later draws depend on it
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    for _ in islice(indices, skip):
        pass
    return map(_fetcher(loader), indices)


def _fetcher(loader: DataLoader[Any]) -> Callable[[Any], Any]:
    """Return the function from the sampler's choice to a batch."""
    dataset: Any = loader.dataset
    collate = loader.collate_fn
    if loader.batch_sampler is None:
        return lambda index: collate(dataset[index])
    if type(dataset) is TensorDataset and collate is default_collate:
        tensors = dataset.tensors
        # one indexing operation in place of one per sample and a stack: the same values
        return lambda chosen: [tensor[chosen] for tensor in tensors]
    get_many = getattr(dataset, "__getitems__", None)
    if callable(get_many):
        return lambda chosen: collate(get_many(chosen))
    return lambda chosen: collate([dataset[index] for index in chosen])


def in_windows(
    batches: Iterable[Any], window: int, total: int | None, done: int, go_on: Callable[[bool], bool] | None = None
) -> Iterator[Micro]:
    """Yield micro-batches with their place.

    Args:
        batches: the rest of an epoch.
        window: micro-batches per optimizer step.
        total: batches in the whole epoch, or None if that is not known; then one window is read ahead.
        done: batches of the epoch that were done before.
        go_on: for an epoch of unknown length on several ranks: takes whether this rank has a whole next window or
            any batch left, and returns whether all have; the epoch ends on all ranks together.
    """
    if total is None:
        yield from _read_ahead(batches, window, done % window, go_on)
        return
    position = done
    for batch in islice(batches, total - done):
        start = position - position % window
        size = min(window, total - start)
        position += 1
        yield Micro(batch, size, position - start == size, position == total)
    if position < total:
        raise InterlockError(f"the training loader says it has {total} batches, but it ended after {position}")


def _read_ahead(
    batches: Iterable[Any], window: int, begun: int, go_on: Callable[[bool], bool] | None
) -> Iterator[Micro]:
    """Yield micro-batches of an epoch without a length; ``begun`` of its first window were done before."""
    source = iter(batches)
    ahead = list(islice(source, window - begun))
    while ahead if go_on is None else go_on(bool(ahead)):
        following = list(islice(source, window))
        for place, batch in enumerate(ahead, start=1):
            ends = place == len(ahead)
            yield Micro(batch, begun + len(ahead), ends, ends and not following)
        ahead, begun = following, 0

"""Cut a batch into parts for several replicas, and join what they returned."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from numbers import Number
from typing import Any, NamedTuple

import torch
from torch import Tensor

from core.errors import InterlockError, WrongType

_CONTAINERS = (Tensor, Mapping, list, tuple)


class Chunk(NamedTuple):
    """One part of a batch and how many samples it holds."""

    batch: Any
    size: int


def cut_batch(batch: Any, parts: int) -> list[Chunk]:
    """Cut ``batch`` into ``parts`` chunks of nearly equal size, fewer where it has fewer samples.

    The first dimension of the first tensor is the number of samples. Every tensor with that first dimension is cut
    along it, and so is every list of that length which holds no tensors or collections (names, paths); all else goes
    whole into each chunk.

    Raises:
        InterlockError: when the batch holds no tensor that could be cut.
    """
    size = _samples(batch)
    if size is None:
        raise InterlockError(
            f"a batch of type {type(batch).__name__} holds no tensor whose first dimension could be cut\n"
            "  hint: put tensors into dicts, lists, tuples or dataclasses, or override split_batch in the strategy"
        )
    parts = max(1, min(parts, size))
    bounds = [size * i // parts for i in range(parts + 1)]
    return [Chunk(_part(batch, size, slice(start, stop)), stop - start) for start, stop in pairwise(bounds)]


def _samples(value: Any) -> int | None:
    if isinstance(value, Tensor):
        return value.shape[0] if value.ndim else None
    for item in _items(value):
        size = _samples(item)
        if size is not None:
            return size
    return None


def _items(value: Any) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, f.name) for f in dataclasses.fields(value) if f.init]
    return ()


def _rebuilt(value: Any, items: Sequence[Any]) -> Any:
    """Return a collection like ``value`` with other items; anything else as it is."""
    if isinstance(value, Mapping):
        changed = dict(zip(value, items, strict=True))
        return changed if type(value) is dict else type(value)(changed)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*items)
    if isinstance(value, list | tuple):
        return type(value)(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if f.init]
        return dataclasses.replace(value, **dict(zip(names, items, strict=True)))
    return value


def _is_plain_list(value: Any) -> bool:
    """Tell whether ``value`` lists one thing per sample rather than being a structure of tensors."""
    is_list = isinstance(value, list | tuple) and not hasattr(value, "_fields")
    return is_list and not any(isinstance(item, _CONTAINERS) or dataclasses.is_dataclass(item) for item in value)


def _part(value: Any, size: int, where: slice) -> Any:
    if isinstance(value, Tensor):
        return value[where] if value.ndim and value.shape[0] == size else value
    if _is_plain_list(value):
        return value[where] if len(value) == size else value
    return _rebuilt(value, [_part(item, size, where) for item in _items(value)])


def join_outputs(outputs: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return one value for what replicas returned for chunks of ``sizes`` samples, on the first one's device.

    Tensors are joined along their first dimension; those of no dimension, and numbers, are averaged, weighted by
    ``sizes``. Dicts, tuples, lists and dataclasses are joined item by item; lists without tensors or collections are
    put one after the other. Of anything else the first replica's stands for all.

    Raises:
        WrongType: when the replicas returned different structures.
    """
    first = outputs[0]
    if len(outputs) == 1:
        return first
    if isinstance(first, Tensor):
        return _joined_tensors(outputs, sizes)
    if isinstance(first, Number) and not isinstance(first, bool):
        return sum(value * size for value, size in zip(outputs, sizes, strict=True)) / sum(sizes)
    if all(map(_is_plain_list, outputs)):
        return type(first)(item for output in outputs for item in output)
    _check_alike(outputs)
    columns = zip(*map(_items, outputs), strict=True)
    return _rebuilt(first, [join_outputs(column, sizes) for column in columns])


def _joined_tensors(outputs: Sequence[Any], sizes: Sequence[int]) -> Tensor:
    first = outputs[0]
    if not all(isinstance(output, Tensor) and (output.ndim > 0) == (first.ndim > 0) for output in outputs):
        _refuse_different(outputs)
    tensors = [output.to(first.device) for output in outputs]
    return torch.cat(tensors) if first.ndim else weighted_mean(tensors, sizes)


def weighted_mean(values: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Return the mean of scalars weighted by ``sizes``; integers are averaged as float64."""
    stacked = torch.stack(list(values))
    if not stacked.is_floating_point() and not stacked.is_complex():
        stacked = stacked.double()
    weights = torch.tensor(sizes, dtype=torch.float64, device=stacked.device) / sum(sizes)
    return (stacked * weights.to(stacked.dtype)).sum(0)


def _check_alike(outputs: Sequence[Any]) -> None:
    first = outputs[0]
    shape: Callable[[Any], object] = (lambda v: list(v)) if isinstance(first, Mapping) else (lambda v: len(_items(v)))
    if any(type(output) is not type(first) or shape(output) != shape(first) for output in outputs[1:]):
        _refuse_different(outputs)


def _refuse_different(outputs: Sequence[Any]) -> None:
    returned = "; ".join(f"replica {i}: {_described(output)}" for i, output in enumerate(outputs))
    raise WrongType(f"the replicas of one step returned different structures, which cannot be joined\n  {returned}")


def _described(output: Any) -> str:
    if isinstance(output, Tensor):
        return f"tensor of shape {tuple(output.shape)}"
    if isinstance(output, Mapping):
        return f"{type(output).__name__} with keys {list(output)}"
    items = _items(output)
    return f"{type(output).__name__} of {len(items)}" if items else type(output).__name__

"""Tensors inside nested batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return ``value`` with ``change`` applied to each tensor in dicts, lists, tuples and dataclasses.

    Objects with a ``to`` method of their own and all other types are returned as they are.
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, Mapping):
        changed = {key: map_tensors(item, change) for key, item in value.items()}
        return changed if type(value) is dict else type(value)(changed)  # type: ignore[call-arg]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f for f in dataclasses.fields(value) if f.init]
        return dataclasses.replace(value, **{f.name: map_tensors(getattr(value, f.name), change) for f in fields})
    return value


def batch_size_of(batch: Any) -> int:
    """Return the size of the first dimension of the first tensor in ``batch``; 1 when there is none."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else 1
    items: Any = ()
    if isinstance(batch, Mapping):
        items = batch.values()
    elif isinstance(batch, list | tuple):
        items = batch
    elif dataclasses.is_dataclass(batch):
        items = (getattr(batch, f.name) for f in dataclasses.fields(batch))
    for item in items:
        if isinstance(item, Tensor | Mapping | list | tuple):
            return batch_size_of(item)
    return 1


def detach_to_host(value: Any) -> Any:
    """Return ``value`` with each tensor detached and copied to host memory."""
    return map_tensors(value, lambda tensor: tensor.detach().cpu().clone())


__all__ = ["batch_size_of", "detach_to_host", "map_tensors"]

"""Tensors inside nested batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor


def map_tensors(value: Any, change: Callable[[Any], Any], kinds: type | tuple[type, ...] = Tensor) -> Any:
    """Return ``value`` with ``change`` applied to each tensor in dicts, lists, tuples and dataclasses.

    Objects with a ``to`` method of their own and all other types are returned as they are. With ``kinds`` it is
    applied to what is of these types instead.
    """
    if isinstance(value, kinds):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change, kinds) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, change, kinds) for item in value)
    if isinstance(value, Mapping):
        changed = {key: map_tensors(item, change, kinds) for key, item in value.items()}
        return changed if type(value) is dict else type(value)(changed)  # type: ignore[call-arg]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f for f in dataclasses.fields(value) if f.init]
        changed = {f.name: map_tensors(getattr(value, f.name), change, kinds) for f in fields}
        return dataclasses.replace(value, **changed)
    return value


def batch_size_of(batch: Any) -> int:
    """Return the size of the first dimension of the first tensor in ``batch``; 1 when there is none."""
    first = _first_tensor(batch)
    return first.shape[0] if first is not None and first.ndim else 1


def _first_tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    items: Iterable[Any] = ()
    if isinstance(value, Mapping):
        items = value.values()
    elif isinstance(value, list | tuple):
        items = value
    elif dataclasses.is_dataclass(value):
        items = (getattr(value, field.name) for field in dataclasses.fields(value))
    found = map(_first_tensor, items)
    return next((tensor for tensor in found if tensor is not None), None)


def detach_to_host(value: Any) -> Any:
    """Return ``value`` with each tensor detached and copied to host memory."""
    return map_tensors(value, lambda tensor: tensor.detach().cpu().clone())


__all__ = ["batch_size_of", "detach_to_host", "map_tensors"]

"""Where a module, its hyperparameters or a data module keep a value that a search may set."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from core.errors import InvalidArgument


class Holder(NamedTuple):
    """One place that holds the value."""

    where: str
    read: Callable[[], Any]
    write: Callable[[Any], None]


def find_holders(names: Sequence[str], module: nn.Module, datamodule: object) -> list[Holder]:
    """Return every place that holds the first of ``names`` that is held anywhere; an empty list where none is."""
    for name in names:
        found: list[Holder] = []
        for label, owner in (("module", module), ("data module", datamodule)):
            if owner is None:
                continue
            if hasattr(owner, name):
                found.append(_attribute(f"{label}.{name}", owner, name))
            hparams = getattr(owner, "hparams", None)
            if isinstance(hparams, MutableMapping) and name in hparams:
                found.append(_entry(f"{label}.hparams.{name}", hparams, name))
        if found:
            return found
    return []


def need_holders(names: Sequence[str], module: nn.Module, datamodule: object, what: str) -> list[Holder]:
    """As :func:`find_holders`.

    Raises:
        InvalidArgument: where no place holds any of ``names``.
    """
    found = find_holders(names, module, datamodule)
    if not found:
        looked = [f"{type(module).__name__} and its hparams"]
        if datamodule is not None:
            looked.append(f"{type(datamodule).__name__} and its hparams")
        raise InvalidArgument(f"{what} found no {' or '.join(map(repr, names))} in {', '.join(looked)}")
    return found


def write_all(holders: Sequence[Holder], value: Any) -> None:
    """Write ``value`` to every place."""
    for holder in holders:
        holder.write(value)


def _attribute(where: str, owner: object, name: str) -> Holder:
    return Holder(where, lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


def _entry(where: str, mapping: MutableMapping[str, Any], name: str) -> Holder:
    return Holder(where, lambda: mapping[name], lambda value: mapping.__setitem__(name, value))

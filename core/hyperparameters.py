"""Keep the arguments a module was made with, so that a checkpoint can make it again."""

from __future__ import annotations

import dataclasses
import inspect
from argparse import Namespace
from collections.abc import Mapping
from enum import Enum
from types import FrameType
from typing import Any

from core.checkpoint.io import to_plain
from core.errors import CheckpointError


class AttributeDict(dict[str, Any]):
    """A dictionary whose entries are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no hyperparameter {name!r}; there are {', '.join(self) or 'none'}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def simplified(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return hyperparameters in types that a checkpoint can hold, and a line for each that had to change.

    Enums become their value and dataclasses dictionaries; what has no plain form is left out.
    """
    plain: dict[str, Any] = {}
    changes: list[str] = []
    for name, value in values.items():
        simple = _simple(value)
        try:
            plain[name] = to_plain(simple, name)
        except CheckpointError:
            changes.append(f"{name} ({type(value).__name__}) is left out")
            continue
        if simple is not value:
            changes.append(f"{name} ({type(value).__name__}) is kept as {plain[name]!r}")
    return plain, changes


def _simple(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


class HyperparametersMixin:
    """Adds :meth:`save_hyperparameters` and :attr:`hparams`."""

    _hparams: AttributeDict
    _log_hparams: bool
    _hparams_name: str | None = None
    """The argument of ``__init__`` that held all of them, if one did."""

    @property
    def hparams(self) -> AttributeDict:
        """What :meth:`save_hyperparameters` kept."""
        if "_hparams" not in self.__dict__:
            self.__dict__["_hparams"] = AttributeDict()
        return self.__dict__["_hparams"]  # type: ignore[no-any-return]

    def save_hyperparameters(
        self, *names: Any, ignore: str | list[str] | tuple[str, ...] = (), logger: bool = True
    ) -> None:
        """Keep the arguments of ``__init__``; call it there.

        Args:
            names: only these, or one mapping or Namespace of values to keep instead.
            ignore: all but these.
            logger: hand them to the loggers at the start of a run.
        """
        self.__dict__["_log_hparams"] = logger
        left_out = {ignore} if isinstance(ignore, str) else set(ignore)
        frame = inspect.currentframe()
        values = _init_arguments(frame.f_back if frame else None, self)
        if len(names) == 1 and isinstance(names[0], Mapping | Namespace):
            kept = vars(names[0]) if isinstance(names[0], Namespace) else names[0]
            self.hparams.update({k: v for k, v in kept.items() if k not in left_out})
            # so that a checkpoint knows which argument to make the module with
            self.__dict__["_hparams_name"] = next((name for name, value in values.items() if value is names[0]), None)
            return
        wanted = set(names) if names else set(values)
        self.hparams.update({k: v for k, v in values.items() if k in wanted - left_out})


def _init_arguments(frame: FrameType | None, owner: object) -> dict[str, Any]:
    """Return the arguments of the outermost ``__init__`` of ``owner`` that is running."""
    values: dict[str, Any] = {}
    while frame is not None and frame.f_code.co_name == "__init__":
        arguments = inspect.getargvalues(frame)
        if not arguments.args or arguments.locals.get(arguments.args[0]) is not owner:
            break
        own = {name: arguments.locals[name] for name in arguments.args[1:]}
        code = frame.f_code
        keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        own.update({name: arguments.locals[name] for name in keyword_only})
        own.update(arguments.locals.get(arguments.keywords or "", {}))
        values = {**values, **own}  # a subclass's __init__ is further out and has the last word
        frame = frame.f_back
    values.pop("__class__", None)
    return values

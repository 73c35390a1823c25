"""A callback made of functions."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from core.callbacks.base import Callback
from core.errors import InvalidArgument, WrongType

HOOKS = tuple(sorted(name for name in vars(Callback) if name.startswith("on_") or name in ("setup", "teardown")))


class LambdaCallback(Callback):
    """``LambdaCallback(on_train_epoch_end=lambda trainer, module: ...)``: each keyword is a hook's name.

    Raises:
        InvalidArgument: for a name that is no hook's, with the nearest ones.
    """

    def __init__(self, **hooks: Callable[..., Any] | None) -> None:
        for name, function in hooks.items():
            if name not in HOOKS:
                near = " or ".join(get_close_matches(name, HOOKS)) or ", ".join(HOOKS)
                raise InvalidArgument(f"LambdaCallback has no hook {name!r}; did you mean {near}?")
            if function is None:
                continue
            if not callable(function):
                raise WrongType(f"{name} must be a function, not {type(function).__name__} {function!r}")
            setattr(self, name, function)

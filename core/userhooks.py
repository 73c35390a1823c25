"""Which methods of a module are its author's, and which it only inherits from a framework's base class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

FRAMEWORKS = (
    "core.module",
    "core.callbacks.base",
    "core.datamodule",
    "torch.nn",
    "lightning.pytorch.core",
    "lightning.pytorch.callbacks.callback",
    "pytorch_lightning.core",
    "pytorch_lightning.callbacks.callback",
)
"""Modules whose classes hold defaults: a method found there was not written by the user."""

DEFAULTS = ("predict_step",)
"""Steps that a framework's base class does fill."""


def overridden(owner: object, name: str) -> Callable[..., Any] | None:
    """Return the bound method ``name`` if the user wrote it, in a class or on the instance; else None."""
    if owner is None:
        return None
    if name in vars(owner):
        own = vars(owner)[name]
        return own if callable(own) else None
    for cls in type(owner).__mro__:
        if name in vars(cls):
            method = getattr(owner, name)
            return method if callable(method) and not cls.__module__.startswith(FRAMEWORKS) else None
    return None


def has_step(module: object, name: str) -> bool:
    """Tell whether there is a method ``name`` to call; a base class's placeholder, there to be filled, is none."""
    return callable(getattr(module, name, None)) and (name in DEFAULTS or overridden(module, name) is not None)


def has_run_hooks(module: nn.Module) -> bool:
    """Tell whether the module is of a class that knows hooks with everyday names, such as ``setup``.

    A plain ``nn.Module`` may have a method of such a name that means something else.
    """
    bases = [cls for cls in type(module).__mro__ if cls.__module__.startswith(FRAMEWORKS)]
    return any(cls.__name__ in ("Module", "LightningModule") and cls is not nn.Module for cls in bases)

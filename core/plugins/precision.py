"""Base class of precisions: number formats, and whether the loss is scaled."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.optim import Optimizer

from core.hookspecs import hookimpl
from core.plugins.base import Plugin, does_nothing


class Precision(Plugin):
    """Weights and arithmetic as they are. A subclass overrides what it changes.

    To scale the loss, wrap ``backward`` and register a hook on the loss: the gradient that backward starts
    with is then the scale instead of 1, which is the same arithmetic as multiplying the loss.
    """

    @hookimpl
    @does_nothing
    def forward_context(self) -> AbstractContextManager[Any]:
        return nullcontext()

    @hookimpl
    @does_nothing
    def unscale_gradients(self, optimizers: list[Optimizer]) -> bool:
        return True

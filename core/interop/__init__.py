"""Modules written for other frameworks, run as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from core.trainer import Trainer


@contextmanager
def foreign_attachment(trainer: Trainer, module: nn.Module) -> Iterator[None]:
    """Give a module of another framework what it looks for in its own trainer."""
    if not any(cls.__name__ == "LightningModule" for cls in type(module).__mro__):
        yield
        return
    from core.interop.lightning import attached  # only who brings such a module pays for it

    with attached(trainer, module):
        yield

"""Let the module and the data module see the Trainer while a run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from core.interop import foreign_attachment
from core.module import Module

if TYPE_CHECKING:
    from core.trainer import Trainer


@contextmanager
def attach(trainer: Trainer, module: nn.Module, datamodule: Any) -> Iterator[None]:
    """Attach the Trainer; a module of ours keeps it after the run, since people look at it then."""
    with foreign_attachment(trainer, module):
        if isinstance(module, Module):
            module._trainer = trainer
        if datamodule is not None:
            datamodule.trainer = trainer
        yield

"""Interlock: PyTorch training in which every accelerator, precision and strategy is a plugin.

The public names are resolved when they are first used, so that importing ``core`` imports no torch.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.callbacks import Callback as Callback
    from core.callbacks import ModelCheckpoint as ModelCheckpoint
    from core.data.combined import CombinedLoader as CombinedLoader
    from core.datamodule import DataModule as DataModule
    from core.loggers import CSVLogger as CSVLogger
    from core.loggers import Logger as Logger
    from core.module import Module as Module
    from core.registry import get_registry as get_registry
    from core.seed import seed_everything as seed_everything
    from core.trainer import Trainer as Trainer

__version__ = "0.1.0"

_PUBLIC = {
    "CSVLogger": "core.loggers",
    "Callback": "core.callbacks",
    "CombinedLoader": "core.data.combined",
    "DataModule": "core.datamodule",
    "Logger": "core.loggers",
    "ModelCheckpoint": "core.callbacks",
    "Module": "core.module",
    "Trainer": "core.trainer",
    "get_registry": "core.registry",
    "seed_everything": "core.seed",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'core' has no attribute {name!r}; public names: {', '.join(__all__)}")
    collects = gc.isenabled()
    gc.disable()  # what an import makes stays; a collection in its middle looks through all of torch for nothing
    try:
        value = getattr(import_module(_PUBLIC[name]), name)
    finally:
        if collects:
            gc.enable()
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]

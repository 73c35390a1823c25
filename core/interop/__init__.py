"""Modules written for other frameworks, run as they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import nn

from core.errors import WrongType

if TYPE_CHECKING:
    from core.trainer import Trainer


FOREIGN_CALLBACKS = ("lightning.pytorch.callbacks.", "pytorch_lightning.callbacks.")
TIED = (
    "BatchSizeFinder",
    "DeviceStatsMonitor",
    "EarlyStopping",
    "LearningRateFinder",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "OnExceptionCheckpoint",
    "ProgressBar",
    "StochasticWeightAveraging",
    "WeightAveraging",
)
"""Callbacks that look into the loops of their own Trainer; ours that do the same have the same names."""


@contextmanager
def foreign_attachment(trainer: Trainer, module: nn.Module) -> Iterator[None]:
    """Give a module of another framework what it looks for in its own trainer."""
    if _lightning_class(module) is None:
        yield
        return
    from core.interop.lightning import attached  # only who brings such a module pays for it

    with attached(trainer, module):
        yield


def foreign_entries(module: nn.Module) -> dict[str, str]:
    """Return what another framework's own ``load_from_checkpoint`` looks for in a file of its module's."""
    cls = _lightning_class(module)
    if cls is None:
        return {}
    return {
        "pytorch-lightning_version": str(getattr(sys.modules[cls.__module__.partition(".")[0]], "__version__", "2"))
    }


def refuse_foreign_callback(callback: object) -> None:
    """Refuse a callback that ships with another framework and looks into the loops of its Trainer.

    Raises:
        WrongType: with the one to take in its place.
    """
    for cls in type(callback).__mro__:
        if cls.__module__.startswith(FOREIGN_CALLBACKS) and cls.__name__ in TIED:
            package = cls.__module__.partition(".")[0]
            raise WrongType(
                f"callback {type(callback).__name__} of {package} works with that package's own Trainer only\n"
                f"  hint: take core.callbacks.{cls.__name__}"
            )


def _lightning_class(module: nn.Module) -> type | None:
    return next((cls for cls in type(module).__mro__ if cls.__name__ == "LightningModule"), None)

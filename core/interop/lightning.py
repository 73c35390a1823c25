"""An unmodified LightningModule: its ``trainer`` is ours, and what it reaches for there is found.

Nothing of Lightning is imported. The methods that log, optimize and look at the run are bound on the instance,
through its dictionary, and taken away when the run is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import nn

from core.module import Module

if TYPE_CHECKING:
    from core.trainer import Trainer

BOUND = (
    "log",
    "log_dict",
    "optimizers",
    "lr_schedulers",
    "manual_backward",
    "toggle_optimizer",
    "untoggle_optimizer",
    "toggled_optimizer",
    "clip_gradients",
    "all_gather",
    "print",
)
"""Methods of ours that take the place of the module's own during a run."""


@contextmanager
def attached(trainer: Trainer, module: nn.Module) -> Iterator[None]:
    """Bind our methods on the instance inside, and take them away afterwards."""
    own = vars(module)
    before = {name: own[name] for name in (*BOUND, "_trainer") if name in own}
    own["_trainer"] = trainer
    for name in BOUND:
        own[name] = getattr(Module, name).__get__(module)
    try:
        yield
    finally:
        for name in (*BOUND, "_trainer"):
            own.pop(name, None)
        own.update(before)
        own.setdefault("_trainer", None)

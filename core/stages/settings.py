"""Settings of torch that hold during a run and are put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from core.trainer import Trainer


@contextmanager
def torch_settings(trainer: Trainer) -> Iterator[None]:
    """Apply ``deterministic`` and ``benchmark`` inside; what is not asked for is not touched."""
    deterministic, warn_only = _deterministic()
    benchmark = torch.backends.cudnn.benchmark
    if trainer.deterministic is not None:
        torch.use_deterministic_algorithms(bool(trainer.deterministic), warn_only=trainer.deterministic == "warn")
    if trainer.benchmark is not None:
        torch.backends.cudnn.benchmark = trainer.benchmark
    try:
        yield
    finally:
        if _deterministic() != (deterministic, warn_only):  # the call imports torch's compiler, which takes a second
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.backends.cudnn.benchmark = benchmark


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

"""Mixed precision: weights stay in float32, suitable operations run in 16 bits."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch

from core.hookspecs import hookimpl
from core.plugins.precision import Precision


class AutocastPrecision(Precision):
    """Run forward and loss under ``torch.autocast``; a subclass sets ``dtype``."""

    dtype: ClassVar[torch.dtype]

    @hookimpl
    def forward_context(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=self.dtype)

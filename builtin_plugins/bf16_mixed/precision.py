"""Autocast to bfloat16: its range is that of float32, so the loss is not scaled."""

from typing import ClassVar

import torch

from core.plugins import AutocastPrecision


class BFloat16MixedPrecision(AutocastPrecision):
    """Weights in float32, forward and loss under autocast to bfloat16."""

    dtype: ClassVar[torch.dtype] = torch.bfloat16

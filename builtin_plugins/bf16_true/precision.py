"""Weights in bfloat16."""

from typing import ClassVar

import torch

from core.plugins import WeightsPrecision


class BFloat16Precision(WeightsPrecision):
    """Weights, floating-point inputs and arithmetic in bfloat16."""

    dtype: ClassVar[torch.dtype] = torch.bfloat16

"""Weights in float16."""

from typing import ClassVar

import torch

from core.plugins import WeightsPrecision


class Float16Precision(WeightsPrecision):
    """Weights, floating-point inputs and arithmetic in float16."""

    dtype: ClassVar[torch.dtype] = torch.float16

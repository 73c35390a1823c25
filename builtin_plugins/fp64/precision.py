"""Weights in float64."""

from typing import ClassVar

import torch

from core.plugins import WeightsPrecision


class Float64Precision(WeightsPrecision):
    """Weights, floating-point inputs and arithmetic in float64."""

    dtype: ClassVar[torch.dtype] = torch.float64

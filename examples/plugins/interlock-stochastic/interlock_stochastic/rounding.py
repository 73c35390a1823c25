"""Rounding from float32 to bfloat16 that is right on average."""

from __future__ import annotations

import torch
from torch import Tensor


def round_stochastically(value: Tensor, generator: torch.Generator) -> Tensor:
    """Round a float32 tensor to one of its two bfloat16 neighbours, so that the mean over many calls is ``value``.

    bfloat16 is the upper half of float32. Adding 16 random bits to the lower half and cutting it off goes up with
    a probability equal to the distance from the lower neighbour. What bfloat16 can hold stays as it is; infinities
    and NaN pass.

    :param value: float32, any shape and device.
    :param generator: a generator on the host, so that all devices and ranks draw the same bits.
    :returns: bfloat16, same shape and device.
    """
    noise = torch.randint(0, 1 << 16, value.shape, dtype=torch.int32, generator=generator).to(value.device)
    cut = ((value.view(torch.int32) + noise) & -65536).view(torch.float32)
    return torch.where(torch.isfinite(value), cut, value).to(torch.bfloat16)

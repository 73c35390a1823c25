"""Gradients as small whole numbers, with one scale for each block."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class Codec(NamedTuple):
    """Turns a flat tensor of floats into bytes and back."""

    bits: int
    block: int

    @property
    def largest(self) -> int:
        """The largest code: 127 or 7."""
        return 2 ** (self.bits - 1) - 1

    def size(self, length: int) -> int:
        """Return the bytes that ``length`` values take."""
        num_blocks = -(-length // self.block)
        return num_blocks * (self.block * self.bits // 8 + 4)

    def encode(self, values: Tensor) -> Tensor:
        """Return the codes and scales of ``values``, one after the other.

        :param values: floating point, shape (n,).
        :returns: uint8, shape (``size(n)``,), on the same device.
        """
        blocks = pad(values.float(), (0, -len(values) % self.block)).view(-1, self.block)
        scales = blocks.abs().amax(1, keepdim=True) / self.largest
        codes = (blocks / scales.clamp_min(torch.finfo(torch.float32).tiny)).round_().to(torch.int8).flatten()
        if self.bits == 4:  # two codes in each byte
            low, high = codes[0::2] & 15, codes[1::2] << 4
            codes = low | high
        return torch.cat([codes.view(torch.uint8), scales.flatten().view(torch.uint8)])

    def decode(self, message: Tensor, length: int) -> Tensor:
        """Return float32, shape (``length``,): what :meth:`encode` kept of the values."""
        num_blocks = -(-length // self.block)
        split = len(message) - 4 * num_blocks
        codes = message[:split].view(torch.int8)
        if self.bits == 4:
            codes = torch.stack([(codes << 4) >> 4, codes >> 4], dim=1)
        scales = message[split:].clone().view(torch.float32)
        return (codes.reshape(num_blocks, self.block) * scales[:, None]).flatten()[:length]

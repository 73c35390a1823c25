"""The codec itself."""

from __future__ import annotations

import pytest
import torch
from interlock_quantddp.codec import Codec


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("length", [1, 31, 32, 33, 1000])
def test_decoding_is_off_by_half_a_step_at_most(bits, length):
    """Each number comes back within half of its block's step, whatever the length."""
    codec = Codec(bits, 32)
    values = torch.randn(length, generator=torch.Generator().manual_seed(length)) * 3
    decoded = codec.decode(codec.encode(values), length)
    for start in range(0, length, 32):
        block = slice(start, start + 32)
        step = values[block].abs().max() / codec.largest
        assert (decoded[block] - values[block]).abs().max() <= step / 2 * 1.0001


@pytest.mark.parametrize(("bits", "size"), [(8, 1024 + 4 * 4), (4, 512 + 4 * 4)])
def test_the_message_is_as_short_as_it_can_be(bits, size):
    """1024 numbers in blocks of 256 take their bits and four scales, as ``size`` says beforehand."""
    assert len(Codec(bits, 256).encode(torch.randn(1024))) == size == Codec(bits, 256).size(1024)


@pytest.mark.parametrize("bits", [8, 4])
def test_zeros_stay_zeros(bits):
    """A block of zeros, which has no scale, comes back as zeros."""
    assert (Codec(bits, 32).decode(Codec(bits, 32).encode(torch.zeros(40)), 40) == 0).all()

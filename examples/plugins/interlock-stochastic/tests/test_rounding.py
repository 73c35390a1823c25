"""The rounding itself."""

from __future__ import annotations

import pytest
import torch
from interlock_stochastic.rounding import round_stochastically


def rounded(value: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return round_stochastically(value, torch.Generator().manual_seed(seed))


def test_the_mean_is_the_value():
    """Over many draws the mean is the value itself, where rounding to nearest is off by up to half a unit."""
    values = torch.tensor([1.001, -1.001, 3.14159, -2.71828e-5, 1.7e30, 0.1], dtype=torch.float32)
    draws = 20_000
    many = rounded(values.repeat(draws, 1)).double()
    unit = torch.abs(values.double()) * 2**-7
    assert ((many.mean(0) - values.double()).abs() < 5 * unit / draws**0.5).all()
    assert ((values.to(torch.bfloat16).double() - values.double()).abs() > 5 * unit / draws**0.5).any()


def test_only_the_two_neighbours_are_drawn():
    """A value between two bfloat16 numbers becomes one of them, and both occur."""
    value = torch.full((2000,), 1.001)
    assert set(rounded(value).tolist()) == {1.0, 1.0078125}


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -2.5, float("inf"), float("-inf"), 2.0**-133])
def test_what_bfloat16_can_hold_stays(value):
    """A number that bfloat16 holds is never moved, zeros, infinities and subnormals included."""
    assert (rounded(torch.full((500,), value)) == value).all()


def test_nan_stays_nan():
    """A NaN does not become a number."""
    assert rounded(torch.full((500,), float("nan"))).isnan().all()


def test_the_seed_settles_the_bits():
    """The same seed rounds the same way: ranks with equal weights keep equal weights."""
    value = torch.randn(1000)
    assert torch.equal(rounded(value, 1), rounded(value, 1))
    assert not torch.equal(rounded(value, 1), rounded(value, 2))

"""The size of a batch, as the weight of its values in a mean."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch

from core.data.nested import batch_size_of

Pair = namedtuple("Pair", ["text", "value"])
THREE, TWO = torch.zeros(3, 5), torch.zeros(2)


@dataclass
class Sample:
    """A batch in a class."""

    names: list[str]
    values: torch.Tensor


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (THREE, 3),
        (torch.tensor(1.0), 1),
        ([THREE, TWO], 3),
        ((TWO, THREE), 2),
        ({"x": THREE, "y": TWO}, 3),
        ({"x": {"deep": [TWO]}}, 2),
        (["a", THREE], 3),
        ((["a", "b", "c"], THREE), 3),
        ({"names": ["a"], "x": TWO}, 2),
        (Pair("t", TWO), 2),
        (Sample(["a"], THREE), 3),
        ([], 1),
        (["a", "b"], 1),
        (None, 1),
        (5, 1),
    ],
)
def test_first_tensor(batch, size):
    """It is the first dimension of the first tensor found, in whatever the batch holds; 1 where there is none."""
    assert batch_size_of(batch) == size

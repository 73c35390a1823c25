"""Batches are cut for replicas, and what replicas return is joined."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

from core.data.chunks import cut_batch, join_outputs, weighted_mean
from core.errors import InterlockError, WrongType


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclass
class Sample:
    x: torch.Tensor
    names: list[str]


def test_chunks_are_of_nearly_equal_size():
    """Ten samples for four replicas are cut into chunks of two and three, in order."""
    chunks = cut_batch(torch.arange(10), 4)
    assert [chunk.size for chunk in chunks] == [2, 3, 2, 3]
    assert torch.cat([chunk.batch for chunk in chunks]).equal(torch.arange(10))


def test_fewer_samples_than_replicas_give_fewer_chunks():
    """No replica gets an empty chunk."""
    assert [chunk.size for chunk in cut_batch([torch.zeros(2, 3)], 5)] == [1, 1]


def test_nested_batch_is_cut_in_every_collection():
    """Dicts, tuples, named tuples and dataclasses keep their types, and lists of names are cut as tensors are."""
    x = torch.arange(4.0)
    batch = {
        "pair": Pair(x, x + 1),
        "sample": Sample(x, list("abcd")),
        "tuple": (x, "text"),
        "scale": torch.tensor(2.0),
        "weights": torch.ones(3),
        "ordered": OrderedDict(x=x),
    }
    first, second = (chunk.batch for chunk in cut_batch(batch, 2))
    assert isinstance(first["pair"], Pair)
    assert first["pair"].y.tolist() == [1, 2]
    assert second["sample"] == Sample(second["sample"].x, ["c", "d"])
    assert second["sample"].x.tolist() == [2, 3]
    assert second["tuple"][1] == "text"
    assert isinstance(second["ordered"], OrderedDict)
    assert first["scale"] == 2
    assert first["weights"].numel() == second["weights"].numel() == 3


def test_batch_without_tensors_is_refused():
    """A batch in which nothing can be cut is refused, with what to do."""
    with pytest.raises(InterlockError, match="override split_batch"):
        cut_batch({"words": ["a", "b"]}, 2)


def test_outputs_are_joined_item_by_item():
    """Tensors are joined along the first dimension, scalars and numbers averaged by size, lists put in a row."""
    outputs = [
        {
            "scores": torch.ones(1, 2),
            "accuracy": torch.tensor(1.0),
            "count": 4,
            "names": ["a"],
            "both": (torch.ones(1), 0),
        },
        {
            "scores": torch.zeros(3, 2),
            "accuracy": torch.tensor(0.0),
            "count": 8,
            "names": ["b"],
            "both": (torch.ones(3), 4),
        },
    ]
    joined = join_outputs(outputs, [1, 3])
    assert joined["scores"].shape == (4, 2)
    assert joined["accuracy"] == 0.25
    assert joined["count"] == 7
    assert joined["names"] == ["a", "b"]
    assert joined["both"][0].numel() == 4
    assert joined["both"][1] == 3
    assert join_outputs([None, None], [1, 1]) is None


def test_integers_are_averaged_as_floats():
    """The mean of the integers 3 and 4 is 3.5."""
    assert weighted_mean([torch.tensor(3), torch.tensor(4)], [1, 1]) == 3.5


@pytest.mark.parametrize(
    "outputs",
    [
        [{"a": torch.ones(1)}, {"b": torch.ones(1)}],
        [torch.ones(1), None],
        [torch.ones(1), torch.tensor(1.0)],
        [(torch.ones(1),), (torch.ones(1), torch.ones(1))],
    ],
    ids=["keys", "missing", "scalar", "length"],
)
def test_different_structures_are_refused(outputs):
    """Outputs that do not resemble each other are refused, with what each replica returned."""
    with pytest.raises(WrongType, match=r"replica 0: .*replica 1: "):
        join_outputs(outputs, [1, 1])

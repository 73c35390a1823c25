"""The hand-written loop is sharp: leaving something out moves the parameters by far more than the tolerance."""

from dataclasses import replace

import pytest
import torch

from core.conformance.cases import CASES
from core.conformance.reference import Arithmetic, by_hand, difference, tolerance_of

SAMPLES = 8


def epochs_of(case):
    """Return the samples of each micro-batch, read in order."""
    return [[range(at * SAMPLES, (at + 1) * SAMPLES) for at in range(case.micro_batches)] for _ in range(case.epochs)]


def train(case, arithmetic=Arithmetic(), **changes):
    """Train a case, changed as given, over the data of the unchanged one."""
    return by_hand(replace(case, **changes), epochs_of(case), SAMPLES * case.micro_batches, arithmetic)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("accumulated", {"window": 1}),
        ("accumulated", {"window": 3}),
        ("clip_norm", {"clip": None}),
        ("clip_norm", {"clip": 0.06}),
        ("clip_norm", {"algorithm": "value"}),
        ("clip_value", {"clip": None}),
        ("two_optimizers", {"optimizers": "sgd"}),
        ("groups", {"optimizers": "sgd"}),
    ],
)
def test_left_out(name, changes):
    """Doing a case in another way ends further off than the widest tolerance."""
    case = CASES[name]
    widest = tolerance_of(torch.bfloat16)
    assert difference(train(case)[-1], train(case, **changes)[-1], widest if changes != {"clip": 0.06} else 1e-3)


@pytest.mark.parametrize("name", ["plain", "accumulated", "clip_norm", "clip_value", "two_optimizers", "groups"])
def test_half_a_batch(name):
    """A rank that trains on its own half of each batch ends further off than the widest tolerance."""
    case = CASES[name]
    half = [[list(batch)[::2] for batch in epoch] for epoch in epochs_of(case)]
    alone = by_hand(case, half, SAMPLES * case.micro_batches, Arithmetic())
    assert difference(train(case)[-1], alone[-1], tolerance_of(torch.bfloat16))


@pytest.mark.parametrize(
    "arithmetic",
    [
        Arithmetic(torch.float64),
        Arithmetic(torch.bfloat16),
        Arithmetic(torch.float16),
        Arithmetic(autocast=torch.bfloat16),
        Arithmetic(autocast=torch.float16),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", sorted({case.name for case in CASES.values() if not case.overflow}))
def test_number_formats(name, arithmetic):
    """Every number format follows float32 within its tolerance."""
    formats = [arithmetic.weights, *filter(None, [arithmetic.autocast])]
    tolerance = tolerance_of(torch.float32, *formats)
    assert difference(train(CASES[name], arithmetic)[-1], train(CASES[name])[-1], tolerance) == ""


def test_skipped_steps():
    """A step that is skipped leaves the parameters, and the steps after it go on from there."""
    case = CASES["overflow"]
    data = epochs_of(case)
    steps = by_hand(case, data, SAMPLES * case.micro_batches, Arithmetic(), skipped={1, 4})
    assert difference(steps[1], steps[0], 0.0) == ""
    assert difference(steps[2], steps[1], 1e-3)
    assert all(bool(value.isfinite().all()) for value in steps[-1].values())


def test_difference():
    """A difference names the parameter that is furthest off; numbers that are not finite are never equal."""
    ours = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([100.0])}
    assert difference(ours, ours, 0.0) == ""
    assert "parameter b differs by 0.2 " in difference(ours, {**ours, "b": torch.tensor([125.0])}, 1e-3)
    assert "a differs by inf" in difference({**ours, "a": torch.tensor([1.0, float("nan")])}, ours, 1e-3)
    assert "shape (1,), and (2,) is expected" in difference({**ours, "a": torch.ones(1)}, ours, 1e-3)
    assert "are expected" in difference({"a": ours["a"]}, ours, 1e-3)

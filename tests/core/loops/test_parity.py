"""Every strategy trains to the parameters of a loop by hand on the same global batches."""

from __future__ import annotations

from statistics import mean

import parity_cases
import pytest
import torch
from parity_cases import FULL, IN_OTHER_PRECISIONS, SHORT, SPAWNED, TOLERANCE, train_noisy
from support.reference import by_hand, furthest, run_script, with_trainer

STRATEGIES = ["ddp", "ddp_sharded"]


@pytest.fixture(scope="module", params=STRATEGIES)
def trained(request, tmp_path_factory):
    """What the two ranks of one strategy trained, all cases in one pair of processes."""
    output = tmp_path_factory.mktemp(request.param) / "trained"
    run_script(parity_cases.__file__, request.param, output)
    return [torch.load(f"{output}.{rank}") for rank in range(2)]


@pytest.mark.parametrize("case", [*FULL, *IN_OTHER_PRECISIONS], ids=str)
def test_one_device(case):
    """One process gives the parameters of the loop by hand, to the last bit."""
    assert furthest(with_trainer(case, "single_device", 1), by_hand(case)) == 0


@pytest.mark.processes
@pytest.mark.parametrize("case", [*SHORT, *IN_OTHER_PRECISIONS], ids=str)
def test_two_ranks(trained, case):
    """Two ranks give the parameters of the loop by hand over the joined batches, and the same on both."""
    expected = by_hand(case)
    for rank in trained:
        assert furthest(rank["cases"][str(case)], expected) <= TOLERANCE[case.precision]


@pytest.mark.processes
@pytest.mark.parametrize("case", SPAWNED, ids=str)
def test_spawned_ranks(case):
    """Two spawned ranks give the parameters of the loop by hand, in the module of the process that started them."""
    assert furthest(with_trainer(case, "ddp_spawn", 2), by_hand(case)) <= TOLERANCE[case.precision]


@pytest.mark.processes
def test_batch_norm_and_dropout_on_two_ranks(trained):
    """A model with batch norm and dropout learns on two ranks, and they end with the same weights."""
    for rank in trained:
        assert mean(rank["losses"][-10:]) < 0.5 * mean(rank["losses"][:10])
    assert trained[0]["losses"] != trained[1]["losses"]
    weights = [{n: v for n, v in rank["weights"].items() if "running" not in n} for rank in trained]
    assert furthest(*weights) == 0


def test_batch_norm_and_dropout_on_one_device():
    """A model with batch norm and dropout learns."""
    losses, _ = train_noisy("single_device", 1)
    assert mean(losses[-10:]) < 0.5 * mean(losses[:10])

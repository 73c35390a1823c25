"""What replicas log is brought together before it is logged."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from core.errors import InvalidArgument
from core.metrics import Results
from core.metrics.recording import log_together, recording


def results() -> Results:
    """Return a collection whose values stay in this process."""
    hooks = SimpleNamespace(reduce=lambda tensor, op: tensor, broadcast=lambda value: value)
    return Results(True, True, hooks, torch.device("cpu"))


def logged(calls: list[list[tuple]], sizes: tuple[int, ...] = (1, 3)) -> dict[str, float]:
    """Return the epoch's metrics after each replica made its calls of ``log``."""
    collected, records = results(), []
    for replica, size in zip(calls, sizes, strict=True):
        with recording(torch.zeros(size)) as record:
            for name, value, how in replica:
                collected.log(name, value, **how)
        records.append(record)
    log_together(records)
    return {**collected.step_metrics(), **collected.epoch_metrics()}


def test_mean_is_weighted_by_chunk_size():
    """A value of one sample and one of three count one to three, for the step and for the epoch."""
    metrics = logged([[("loss", torch.tensor(4.0), {})], [("loss", 0.0, {})]])
    assert metrics == {"loss_step": 1.0, "loss_epoch": 1.0}


def test_batch_size_of_the_caller_counts():
    """A batch size that was given weighs more than that of the chunk."""
    metrics = logged([[("loss", 4.0, {"batch_size": 3})], [("loss", 0.0, {"batch_size": 1})]])
    assert metrics["loss_epoch"] == 3.0


@pytest.mark.parametrize(("reduction", "value"), [("sum", 5.0), ("min", 2.0), ("max", 3.0), (max, 3.0)])
def test_other_reductions(reduction, value):
    """Sums, minima and maxima go over all replicas."""
    metrics = logged(
        [[("n", torch.tensor(2.0), {"reduce_fx": reduction})], [("n", torch.tensor(3.0), {"reduce_fx": reduction})]]
    )
    assert metrics["n_step"] == metrics["n_epoch"] == value


def test_name_logged_by_one_replica_only():
    """A name that only one replica logged keeps its value."""
    assert logged([[], [("rare", 2.0, {})]])["rare_epoch"] == 2.0


def test_name_logged_twice_in_each_replica():
    """The n-th call of each replica belongs together: the last step value is that of the last calls."""
    calls = [("x", 1.0, {}), ("x", 5.0, {})]
    metrics = logged([calls, calls])
    assert metrics == {"x_step": 5.0, "x_epoch": 3.0}


def test_wrong_value_is_refused_as_ever():
    """A tensor of several elements is refused in the words of ``log``."""
    with pytest.raises(InvalidArgument, match="takes one number"):
        logged([[("x", torch.ones(2), {})], [("x", torch.ones(2), {})]])


def test_numbers_of_other_kinds_are_logged():
    """A number of numpy's and a truth value are logged as what they are worth; a string is refused."""
    metrics = logged([[("score", np.float32(0.5), {}), ("hit", True, {})], []])
    assert (metrics["score_epoch"], metrics["hit_epoch"]) == (0.5, 1.0)
    with pytest.raises(InvalidArgument, match=r"log\('score'\) takes a number or a tensor of one, not str 'high'"):
        results().log("score", "high")

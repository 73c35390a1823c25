"""A run that goes on from a checkpoint, in a new process, is the unbroken run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import resume_cases
import torch
from resume_cases import EPOCHS, ON_TWO_RANKS, SAMPLES, SCENARIOS
from support.reference import furthest, run_script

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
LAYOUTS = [("single_device", 1), ("ddp", 2), ("ddp_sharded", 2)]
CASES = [(*LAYOUTS[0], s.name) for s in SCENARIOS] + [(*lay, name) for lay in LAYOUTS[1:] for name in ON_TWO_RANKS]
ROUNDED = {("ddp", "inside_window"), ("ddp_sharded", "inside_window")}
"""Cases in which gradients of ranks are averaged before they are saved: the order of sums differs."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a function that gives, for one layout, the unbroken and the resumed runs, rank by rank."""
    known = {}

    def look(strategy, devices):
        if strategy not in known:
            folder = tmp_path_factory.mktemp(strategy)
            names = [s.name for s in SCENARIOS] if devices == 1 else ON_TWO_RANKS
            for mode in ("unbroken", "resumed"):
                run_script(resume_cases.__file__, mode, folder, strategy, devices, *names)
            known[strategy] = [
                tuple(torch.load(folder / f"{mode}-{strategy}.{rank}") for mode in ("unbroken", "resumed"))
                for rank in range(devices)
            ]
        return known[strategy]

    return look


@pytest.mark.processes
@pytest.mark.timeout(300)  # the first case of a layout runs them all
@pytest.mark.parametrize(("strategy", "devices", "name"), CASES)
def test_resumed(runs, strategy, devices, name):
    """From the checkpoint on, samples, losses and weights of every rank are those of the unbroken run, bit for bit."""
    for unbroken, resumed in runs(strategy, devices):
        whole, rest = unbroken[name], resumed[name]
        left = len(rest["losses"])
        assert 0 < left < len(whole["losses"])
        assert rest["seen"] == whole["seen"][-left:]
        if (strategy, name) in ROUNDED:
            assert rest["losses"] == pytest.approx(whole["losses"][-left:], rel=1e-5)
            assert furthest(rest["weights"], whole["weights"]) <= 1e-6
        else:
            assert rest["losses"] == whole["losses"][-left:]
            assert furthest(rest["weights"], whole["weights"]) == 0
        for key in ("rates", "scale", "step", "epoch"):
            assert rest[key] == whole[key]


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("strategy", "devices", "name"), CASES)
def test_each_sample_once(runs, strategy, devices, name):
    """What was seen before the checkpoint and after it is every sample once in each epoch."""
    scenario = BY_NAME[name]
    if scenario.data in ("weighted",):
        return  # drawn with replacement
    epochs = [[] for _ in range(EPOCHS)]
    for unbroken, resumed in runs(strategy, devices):
        before = len(unbroken[name]["losses"]) - len(resumed[name]["losses"])
        seen = unbroken[name]["seen"][:before] + resumed[name]["seen"]
        per_epoch = len(seen) // EPOCHS
        for number, batch in enumerate(seen):
            epochs[number // per_epoch] += batch
    assert [sorted(epoch) for epoch in epochs] == [list(range(SAMPLES))] * EPOCHS


@pytest.mark.parametrize("name", ["mid_epoch", "own_generator", "python_sampler", "inside_window", "stream"])
def test_resumed_twice(tmp_path, name):
    """A run that is broken off and goes on twice in one epoch is the unbroken run, bit for bit."""
    scenario = BY_NAME[name]
    late = replace(scenario, name="late", batch=9)
    unbroken = resume_cases.train(scenario, tmp_path, "single_device", 1, resume=False)
    first = tmp_path / f"{name}-single_device.ckpt"
    resume_cases.train(late, tmp_path, "single_device", 1, resume=False, start=first)
    rest = resume_cases.train(late, tmp_path, "single_device", 1, resume=True)
    assert 0 < len(rest["losses"]) < len(unbroken["losses"]) - EPOCHS * 2
    assert rest["losses"] == unbroken["losses"][-len(rest["losses"]) :]
    assert furthest(rest["weights"], unbroken["weights"]) == 0

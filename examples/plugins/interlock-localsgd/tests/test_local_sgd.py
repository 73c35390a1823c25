"""What interlock-localsgd does, held against local SGD written by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import job
import pytest
import torch
from interlock_localsgd import LocalSGD
from torch import nn

from core import Trainer
from core.errors import InvalidArgument, InvalidCombination


def by_hand(steps: int, sync_every: int | None, *, window: int = 1, clip: float | None = None) -> dict:
    """Train both ranks' copies side by side in this process and return their mean.

    ``sync_every=None`` averages gradients in every step.
    """
    inputs, targets = job.data().tensors
    nets = [job.network() for _ in range(job.WORLD)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=job.LR) for net in nets]
    per_epoch = len(inputs) // job.WORLD // job.BATCH
    for step in range(steps):
        for rank, net in enumerate(nets):
            own = range(rank, len(inputs), job.WORLD)
            for micro in range(step * window, (step + 1) * window):
                start = micro % per_epoch * job.BATCH
                rows = list(own)[start : start + job.BATCH]
                (nn.functional.mse_loss(net(inputs[rows]), targets[rows]) / window).backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
        if sync_every is None:
            average([[p.grad for p in net.parameters()] for net in nets])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if sync_every is not None and step % sync_every == 0:
            average([[p.data for p in net.parameters()] for net in nets])
        if (step + 1) * window % per_epoch == 0:
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] *= 0.5
    average([[p.data for p in net.parameters()] for net in nets])
    return nets[0].state_dict()


def average(tensors: list[list[torch.Tensor]]) -> None:
    for same in zip(*tensors, strict=True):
        mean = sum(same) / len(same)
        for tensor in same:
            tensor.copy_(mean)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    """Return both ranks' results of every case in job.py."""
    out = tmp_path_factory.mktemp("job") / "out"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("job.py")), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    full = torch.load(f"{out}.full", weights_only=True)
    return [torch.load(f"{out}.{rank}", weights_only=True) | {"full": full} for rank in range(job.WORLD)]


def assert_same(one: dict, other: dict, tolerance: float = 1e-6) -> None:
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=tolerance)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("case", "reference"),
    [
        ("clipped", {"steps": 4, "sync_every": 3, "clip": 0.3}),
        ("windows", {"steps": 3, "sync_every": 3, "window": 2}),
        ("unbroken", {"steps": 12, "sync_every": 5}),
        ("warm", {"steps": 6, "sync_every": None}),
        ("neighbours", {"steps": 6, "sync_every": None}),
    ],
)
def test_training_equals_local_sgd_by_hand(ranks, case, reference):
    """Every rank ends with the mean of the weights that the ranks of a hand-written loop end with."""
    expected = by_hand(**reference)
    for rank in ranks:
        assert_same(rank[case], expected)


@pytest.mark.processes
def test_nothing_is_exchanged_between_two_meetings(ranks):
    """The result is not that of averaging in every step, and not that of never averaging."""
    others = [by_hand(12, None), by_hand(12, 100)]
    assert all((ranks[0]["unbroken"]["0.weight"] - other["0.weight"]).abs().max() > 1e-4 for other in others)


@pytest.mark.processes
def test_a_resumed_run_equals_the_unbroken_one(ranks):
    """Six steps, a checkpoint at a meeting, and six more give what twelve give; counters and rate go on."""
    for rank in ranks:
        assert_same(rank["resumed"], rank["unbroken"], tolerance=0)


@pytest.mark.processes
def test_a_checkpoint_is_a_meeting(ranks):
    """Saving averages first: afterwards all ranks are in the state that the file holds, optimizer state too."""
    first, second = (rank["met"] for rank in ranks)
    saved = {name.removeprefix("net."): value for name, value in ranks[0]["full"]["state_dict"].items()}
    assert_same(first, saved, tolerance=0)
    assert_same(second, saved, tolerance=0)
    assert len(ranks[0]["full"]["optimizer_states"]) == 2


@pytest.mark.processes
def test_ranks_skip_the_same_steps(ranks):
    """Under loss scaling, a step that overflows on one rank only is skipped on both, and they end alike."""
    first, second = (rank["skipped"] for rank in ranks)
    assert first["counts"] == second["counts"]
    assert first["counts"][job.OVERFLOW] > ([0, *first["counts"]])[job.OVERFLOW]
    assert first["counts"][-1] < len(first["counts"])
    assert_same(first["weights"], second["weights"], tolerance=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sync_batchnorm": True}, "sync_batchnorm=True computes batch statistics over all ranks"),
    ],
)
def test_what_it_cannot_do_is_refused(settings, words):
    """A combination that local SGD would break is refused by the registry, with the reason from the declaration."""
    with pytest.raises(InvalidCombination, match=words):
        Trainer(accelerator="cpu", strategy="local_sgd", devices=2, **settings)


@pytest.mark.parametrize("options", [{"sync_every": 0}, {"warmup_steps": -1}, {"group_size": True}])
def test_a_wrong_option_is_refused(options):
    """An option below its least value is refused where it is written."""
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        LocalSGD(**options)


def test_the_plan_shows_the_options():
    """A configured instance stands in the plan with its options, and with the distribution it comes from."""
    plan = str(Trainer(accelerator="cpu", strategy=LocalSGD(sync_every=16), devices=2).plan)
    assert "local_sgd  [interlock-localsgd 1.0.0]" in plan
    assert "sync_every=16" in plan


def test_declaring_imports_no_torch():
    """Reading the declaration costs no import of torch."""
    code = "import sys, interlock_localsgd; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0

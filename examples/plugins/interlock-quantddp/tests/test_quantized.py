"""What interlock-quantddp does, held against ddp."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import job
import pytest
import torch
from interlock_quantddp import QuantizedDDP

from core import Trainer
from core.errors import InvalidArgument, InvalidCombination


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    """Return both ranks' results of every case in job.py."""
    out = tmp_path_factory.mktemp("job") / "out"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("job.py")), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return [torch.load(f"{out}.{rank}", weights_only=True) for rank in range(job.WORLD)]


def assert_same(one: dict, other: dict, tolerance: float = 0) -> None:
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=tolerance)


@pytest.mark.processes
def test_in_eight_bits_it_follows_ddp(ranks):
    """Windows, clipping and two optimizers give the weights of ddp within what 8 bits leave over."""
    assert_same(ranks[0]["windows"], ranks[0]["ddp windows"], 1e-3)


@pytest.mark.processes
@pytest.mark.parametrize("case", ["eight", "four", "windows", "resumed"])
def test_ranks_stay_equal(ranks, case):
    """Every rank decodes the same messages: their weights are equal to the bit."""
    assert_same(ranks[0][case], ranks[1][case])


@pytest.mark.processes
@pytest.mark.parametrize(("case", "share"), [("eight", 0.4), ("four", 0.2)])
def test_it_sends_less_and_learns_as_well(ranks, case, share):
    """About a quarter or an eighth is sent, besides scales and padding; error feedback brings the loss of ddp."""
    whole = 4 * 60 * sum(value.numel() for name, value in ranks[0]["ddp"].items() if name != "loss")
    assert ranks[0]["sent"][case] < share * whole
    assert ranks[0][case]["loss"] == pytest.approx(ranks[0]["ddp"]["loss"].item(), rel=0.05)


@pytest.mark.processes
def test_a_resumed_run_equals_the_unbroken_one(ranks):
    """Seven steps, a checkpoint and seven more give what fourteen give: each rank's error memory goes on."""
    for rank in ranks:
        assert_same(rank["resumed"], rank["unbroken"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"precision": "16-mixed"}, "would stay in its error memory"),
        ({"sync_batchnorm": True}, "sync_batchnorm=True computes batch statistics over all ranks"),
    ],
)
def test_what_it_cannot_do_is_refused(settings, words):
    """A combination that quantized gradients would break is refused, with the reason from the declaration."""
    with pytest.raises(InvalidCombination, match=words):
        Trainer(accelerator="cpu", strategy="ddp_quantized", devices=2, **settings)


@pytest.mark.parametrize("options", [{"bits": 3}, {"block": 7}, {"block": 0}])
def test_a_wrong_option_is_refused(options):
    """An option that the codec cannot work with is refused where it is written."""
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        QuantizedDDP(**options)


def test_the_plan_shows_the_options():
    """A configured instance stands in the plan with its options, and with the distribution it comes from."""
    plan = str(Trainer(accelerator="cpu", strategy=QuantizedDDP(bits=4), devices=2).plan)
    assert "ddp_quantized  [interlock-quantddp 1.0.0]" in plan
    assert "bits=4" in plan

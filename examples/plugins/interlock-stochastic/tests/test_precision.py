"""Training with bf16-stochastic through the Trainer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import job
import pytest
import torch
from interlock_stochastic import StochasticRounding
from torch import nn

from core import Module, Trainer
from core.errors import InvalidCombination


class Drift(Module):
    """A weight of 1 whose gradient is 1: each step should take 1e-3 off, a quarter of a unit in the last place."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(400))

    def training_step(self, batch, batch_idx):
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def test_updates_too_small_for_bfloat16_add_up():
    """Where rounding to nearest never moves the weights, stochastic rounding moves them as far as float32 does."""
    nearest = job.train("bf16-true", 100, Drift(), gradient_clip_val=None).weight.float().mean().item()
    stochastic = job.train("bf16-stochastic", 100, Drift(), gradient_clip_val=None).weight.float().mean().item()
    assert nearest == 1.0
    assert stochastic == pytest.approx(0.9, abs=0.003)


def loss_of(module: Module) -> float:
    inputs, targets = job.data().tensors
    return nn.functional.mse_loss(module.net.float()(inputs), targets).item()


def test_it_learns_as_well_as_float32():
    """The loss reached is that of float32 within ten per cent."""
    exact, stochastic = (loss_of(job.train(p, 240)) for p in ("32-true", "bf16-stochastic"))
    assert stochastic == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("optimizer", ["AdamW", "Adagrad", "RMSprop"])
def test_weights_are_bfloat16_and_state_is_float32(optimizer):
    """Between steps only bfloat16 weights are there: the float32 stand-ins have no memory; state is in float32."""
    made = []

    def make(parameters):
        made.append(getattr(torch.optim, optimizer)(parameters, lr=0.01))
        return made[0]

    module = job.train("bf16-stochastic", 3, job.Regression(make))
    assert all(p.dtype == torch.bfloat16 and p.grad is None for p in module.parameters())
    stand_ins = [p for group in made[0].param_groups for p in group["params"]]
    assert len(stand_ins) == 4
    assert all(p.numel() == 0 and p.dtype == torch.float32 for p in stand_ins)
    state = [v for p in stand_ins for v in made[0].state[p].values() if isinstance(v, torch.Tensor)]
    assert state
    assert all(tensor.dtype == torch.float32 for tensor in state)


def test_a_resumed_run_equals_the_unbroken_one(tmp_path):
    """Three steps, a checkpoint and three more give what six give, to the bit: the generator goes on too."""
    unbroken = job.train("bf16-stochastic", 6)
    job.train("bf16-stochastic", 3, save=str(tmp_path / "half.ckpt"))
    resumed = job.train("bf16-stochastic", 6, resume=str(tmp_path / "half.ckpt"))
    for mine, expected in zip(resumed.parameters(), unbroken.parameters(), strict=True):
        assert torch.equal(mine, expected)


@pytest.mark.processes
def test_ranks_stay_equal(tmp_path):
    """Under ddp all ranks round the same way: their weights are equal to the bit."""
    command = [sys.executable, str(Path(__file__).with_name("job.py")), str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"out.{rank}", weights_only=True) for rank in (0, 1))
    for name, value in first.items():
        assert value.dtype == torch.bfloat16
        assert torch.equal(value, second[name])


def test_a_sharded_optimizer_is_refused():
    """A strategy whose optimizer is sharded is refused, with the reason from the declaration."""
    with pytest.raises(InvalidCombination, match="float32 stand-ins"):
        Trainer(accelerator="cpu", precision="bf16-stochastic", strategy="ddp_sharded", devices=2)


def test_a_closure_optimizer_is_refused():
    """LBFGS is refused before the first step."""
    with pytest.raises(InvalidCombination, match="a closure would read the weights"):
        job.train("bf16-stochastic", 1, job.Regression(lambda p: torch.optim.LBFGS(p)))


def test_the_plan_shows_the_seed():
    """A configured instance stands in the plan with its option and its distribution."""
    plan = str(Trainer(accelerator="cpu", precision=StochasticRounding(seed=5)).plan)
    assert "bf16-stochastic  [interlock-stochastic 1.0.0]" in plan
    assert "seed=5" in plan

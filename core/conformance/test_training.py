"""Training, held against the hand-written loop in one process over the same global batches."""

from __future__ import annotations

import math

from core.conformance.checks import check, lacks
from core.conformance.judge import Judge
from core.conformance.model import Net
from core.conformance.reference import Weights, difference
from core.conformance.setup import EQUAL, GLOBAL


@check(claims=GLOBAL)
def test_plain_training(judge: Judge) -> None:
    """Training follows the parameters of the hand-written loop at every step."""
    judge.trains("plain")


@check("strategy", "precision")
def test_parameter_groups(judge: Judge) -> None:
    """Two parameter groups keep their own learning rate and weight decay."""
    judge.trains("groups")


@check("strategy", "precision", claims="grad_sync.skip")
def test_accumulation(judge: Judge) -> None:
    """Accumulation steps once per window, and a shorter last window is divided by its own size."""
    judge.trains("accumulated")


@check("strategy", "precision", claims="clip.norm")
def test_clipping_by_norm(judge: Judge) -> None:
    """Gradients are clipped by their global norm, after they were exchanged and unscaled."""
    judge.trains("clip_norm")


@check("strategy", "precision", claims="clip.value")
def test_clipping_by_value(judge: Judge) -> None:
    """Gradients are clipped by value, after they were exchanged and unscaled."""
    judge.trains("clip_value")


@check("strategy", "precision", claims="optimizer.many")
def test_two_optimizers(judge: Judge) -> None:
    """Two optimizers of different kinds each step their own parameters."""
    judge.trains("two_optimizers")


@check("strategy", "precision", claims="optimizer.closure")
def test_closure_optimizer(judge: Judge) -> None:
    """An optimizer that evaluates the loss several times per step, such as LBFGS, sees the same losses."""
    judge.trains("closure")


@check("strategy", "precision", claims="manual_optimization")
def test_manual_optimization(judge: Judge) -> None:
    """A module that runs backward and the optimizer step itself trains to the same parameters."""
    judge.trains("manual")


@check("strategy", "precision", claims="sync_batchnorm")
def test_sync_batchnorm(judge: Judge) -> None:
    """Batch-norm statistics are those of the batch over all ranks."""
    judge.trains("sync_batchnorm")


@check("strategy")
def test_weights_come_home(judge: Judge) -> None:
    """After training, the module in the caller's hands holds the trained parameters."""
    facts = judge.sound()
    tolerance = judge.tolerance(facts)
    if judge.setup.compares:
        expected, whose = judge.reference(facts)[-1], "the hand-written loop"
    elif judge.setup.plan.provides(EQUAL) and not facts.hold_parts:
        expected, whose = facts.ranks[0]["steps"][-1], "rank 0"
    else:  # what it leaves there of several ranks' weights is its own affair, but not those from before
        untrained: Weights = {name: p.detach() for name, p in Net().named_parameters()}
        if not difference(facts.home, untrained, tolerance):
            lacks("it holds the parameters from before the training")
        expected, whose, tolerance = untrained, "the module before", math.inf
    problem = difference(facts.home, expected, tolerance)
    if problem:
        lacks(f"compared with {whose}, {problem}")

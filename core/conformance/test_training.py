"""Training, held against the hand-written loop in one process over the same global batches."""

from __future__ import annotations

from core.conformance.checks import check, lacks
from core.conformance.judge import Judge
from core.conformance.reference import difference


@check()
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
    problem = difference(facts.home, judge.reference(facts)[-1], judge.tolerance(facts))
    if problem:
        lacks(f"compared with the hand-written loop, {problem}")

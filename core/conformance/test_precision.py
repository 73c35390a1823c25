"""What a precision does to weights, arithmetic and loss."""

from __future__ import annotations

import torch

from core.conformance.checks import check, lacks
from core.conformance.judge import Judge, claimed_formats
from core.conformance.setup import Setup


def says_otherwise(setup: Setup) -> str:
    """Return why the needs of a precision do not tell how it computes; "" when they do."""
    own = [token for token in setup.declaration("precision").provides if ":" in token or token.startswith("amp.")]
    return f"its own {', '.join(own)} says how it computes" if own and not claimed_formats(setup) else ""


@check("precision", hindrance=says_otherwise)
def test_number_formats(judge: Judge) -> None:
    """Weights and layers have the number formats that its needs speak of, and float32 where they speak of none."""
    observed = judge.ran("plain").ranks[0]["observed"]
    arithmetic = judge.arithmetic
    weights, forward = str(arithmetic.weights), str(arithmetic.autocast or arithmetic.weights)
    if observed["weights"] != weights:
        lacks(f"the weights are {observed['weights']}, not {weights}")
    if observed["forward"] != forward:
        lacks(f"a layer returns {observed['forward']}, not {forward}")


@check("precision", claims="weights.half")
def test_weights_take_16_bits(judge: Judge) -> None:
    """Each weight takes 16 bits."""
    weights = judge.ran("plain").ranks[0]["observed"]["weights"]
    if getattr(torch, weights.removeprefix("torch.")).itemsize != 2:
        lacks(f"the weights are {weights}")


@check("precision", claims="loss_scaling")
def test_overflow_skips_the_step(judge: Judge) -> None:
    """A step with a gradient that is not finite is skipped on every rank, counted, and training goes on."""
    judge.sound()
    facts = judge.ran("overflow")
    skipped = facts.ranks[0]["skipped"][-1]
    epochs = len({epoch for epoch, _ in facts.ranks[0]["batches"]})
    if skipped < epochs:
        lacks(f"{epochs} steps had gradients that were not finite, and {skipped} were skipped")
    if skipped == len(facts.ranks[0]["skipped"]):
        lacks(f"all {skipped} steps were skipped")
    counts = [record["skipped"] for record in facts.ranks]
    if any(other != counts[0] for other in counts):
        lacks(f"ranks skipped different steps; counted after each step: {counts}")
    problem = judge.ranks_differ(facts) or judge.differs_from_reference(facts)
    if problem:
        lacks(problem)

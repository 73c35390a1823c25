"""From what the ranks noted to a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from core.conformance.cases import CASES
from core.conformance.checks import cannot_judge, lacks, leave
from core.conformance.programs import Facts, Lab
from core.conformance.reference import Arithmetic, Epoch, Weights, by_hand, difference, tolerance_of
from core.conformance.setup import EQUAL, GLOBAL, Setup

STEP = "after step {} of {}"
UNLIKE = f"the run goes through, and its steps are compared with nothing, for {GLOBAL} is not claimed"


class Judge:
    """Compares runs with the hand-written loop and with each other."""

    def __init__(self, setup: Setup, lab: Lab) -> None:
        self.setup, self.lab = setup, lab

    def ran(self, name: str) -> Facts:
        """Return the facts of a job; end the check when it did not go through."""
        facts = self.lab.facts(name)
        if facts.error:
            lacks(told(facts))
        return facts

    def running(self) -> Facts:
        """Return the facts of plain training; end the check without a verdict when it does not go through."""
        facts = self.lab.facts("plain")
        if facts.error:
            cannot_judge("plain training fails, see the checks about it")
        return facts

    def sound(self) -> Facts:
        """Return the facts of plain training; end the check without a verdict when that is already wrong."""
        facts = self.lab.facts("plain")
        problem = facts.error or self.ranks_differ(facts) or self.differs_from_reference(facts)
        if problem:
            cannot_judge("plain training is already wrong, see the checks about it")
        return facts

    def trains(self, name: str) -> None:
        """Hold a job against the reference."""
        facts = self.ran(name) if name == "plain" else self.sound() and self.ran(name)
        apart = self.ranks_differ(facts)
        if apart and name in ("plain", "accumulated"):
            cannot_judge("the ranks differ, see the checks about the exchange of gradients")
        problem = apart or self.differs_from_reference(facts)
        if problem:
            lacks(problem)
        self.need_comparison(UNLIKE)

    def need_comparison(self, why: str) -> None:
        """End the check where it is not claimed that steps equal those of the hand-written loop."""
        if not self.setup.compares:
            leave(why)

    @property
    def arithmetic(self) -> Arithmetic:
        """The number formats that the precision's needs speak of."""
        weights, autocast = torch.float32, None
        for token in claimed_formats(self.setup):
            claim, _, name = token.partition(".")
            if claim == "dtype":
                weights = getattr(torch, name)
            else:
                autocast = getattr(torch, name)
        return Arithmetic(weights, autocast)

    def tolerance(self, facts: Facts) -> float:
        """Return the tolerance of a run: as given, or by the coarsest number format that was met in it."""
        if self.setup.tolerance is not None:
            return self.setup.tolerance
        observed = facts.ranks[0]["observed"]
        formats = [getattr(torch, observed[where].removeprefix("torch.")) for where in ("weights", "forward")]
        return tolerance_of(*formats, *filter(None, self.arithmetic))

    def ranks_differ(self, facts: Facts) -> str:
        """Return where two ranks hold different parameters after a step; "" when none do, or need not be equal."""
        first, *others = facts.ranks
        if facts.hold_parts or not self.setup.plan.provides(EQUAL):
            return ""
        for rank, other in enumerate(others, start=1):
            for number, (ours, theirs) in enumerate(zip(first["steps"], other["steps"], strict=True), start=1):
                problem = difference(theirs, ours, self.tolerance(facts))
                if problem:
                    when = STEP.format(number, len(first["steps"]))
                    return f"{when}, rank {rank} and rank 0 hold different parameters: {problem}"
        return ""

    def differs_from_reference(self, facts: Facts) -> str:
        """Return where the run leaves the hand-written loop; "" when it does not, or need not follow it."""
        reference = self.reference(facts)
        steps = facts.ranks[0]["steps"]
        if len(steps) != len(reference):
            return f"it made {len(steps)} optimizer steps where the hand-written loop makes {len(reference)}"
        if not self.setup.compares:
            return ""
        if facts.hold_parts:
            steps, reference = [facts.home], reference[-1:]
        return first_difference(steps, reference, self.tolerance(facts), "the hand-written loop")

    def reference(self, facts: Facts) -> list[Weights]:
        """Train by hand over the samples that the run has read, leaving out the steps that it skipped."""
        case, record = CASES[facts.job.case], facts.ranks[0]
        skipped = {
            step
            for step, (before, now) in enumerate(zip([0, *record["skipped"]], record["skipped"], strict=False))
            if now > before
        }
        return by_hand(case, list(epochs_of(facts)), facts.job.samples, self.arithmetic, skipped)


def told(facts: Facts) -> str:
    """Return how a run failed, and where to read more."""
    return f"the run {facts.job.name!r} failed: {facts.error}\nsee {facts.ending.log}"


def claimed_formats(setup: Setup) -> list[str]:
    """Return the tokens of number formats that the precision needs."""
    needs = setup.declaration("precision").needs
    return [token for need in needs for token in need.alternatives[:1] if token.startswith(("autocast.", "dtype."))]


def first_difference(ours: Sequence[Weights], theirs: Sequence[Weights], tolerance: float, whose: str) -> str:
    """Return the first step after which two runs differ; "" when there is none."""
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True), start=1):
        problem = difference(mine, other, tolerance)
        if problem:
            return f"{STEP.format(number, len(ours))} it differs from {whose}: {problem}"
    return ""


def epochs_of(facts: Facts) -> Iterator[Epoch]:
    """Yield the samples of each epoch's micro-batches over all ranks; ranks that read the same count once."""
    per_rank = [record["batches"] for record in facts.ranks]
    epochs: dict[int, list[list[int]]] = {}
    for batches in zip(*per_rank, strict=True):
        chosen = dict.fromkeys(number for _, numbers in batches for number in numbers)
        epochs.setdefault(batches[0][0], []).append(list(chosen))
    yield from epochs.values()

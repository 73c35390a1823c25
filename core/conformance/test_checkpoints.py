"""Saving, and going on in another process."""

from __future__ import annotations

import math
from typing import Any

import torch

from core.checkpoint import read_checkpoint
from core.conformance.cases import CASES
from core.conformance.checks import cannot_judge, check, lacks
from core.conformance.judge import UNLIKE, Judge, first_difference, told
from core.conformance.model import Net, make_optimizers
from core.conformance.programs import Facts
from core.conformance.recorder import MIDDLE, MIDDLE_FILE
from core.conformance.reference import difference
from core.conformance.setup import one_device


@check("strategy", "precision")
def test_resume_in_a_new_process(judge: Judge) -> None:
    """A run that goes on from a checkpoint inside an epoch, in new processes, ends as the unbroken run."""
    goes_on(judge, "resumed")


@check("strategy", claims="checkpoint.other_world_size", hindrance=one_device)
def test_resume_on_another_number_of_ranks(judge: Judge) -> None:
    """A checkpoint of several devices, read by one rank on one device, goes on as the unbroken run."""
    goes_on(judge, "other_world_size")


@check("strategy", claims="checkpoint.full")
def test_resume_without_the_strategy(judge: Judge) -> None:
    """A strategy of one process goes on from the checkpoint as the unbroken run."""
    goes_on(judge, "without_strategy")


@check("strategy", claims="checkpoint.full")
def test_checkpoint_is_plain(judge: Judge) -> None:
    """The file holds all weights and all optimizer state in torch's own layout."""
    facts = saved(judge)
    checkpoint = read_checkpoint(facts.place / MIDDLE_FILE)
    written_at = judge.reference(facts)[MIDDLE - 1]
    tolerance = judge.tolerance(facts) if judge.setup.compares else math.inf  # the names and shapes alone
    problem = difference(_plain_names(checkpoint["state_dict"]), written_at, tolerance)
    if problem:
        lacks(f"the weights in the file are not those of the step at which it was written: {problem}")
    net = Net().to(judge.arithmetic.weights)
    states = checkpoint["optimizer_states"]
    optimizers = make_optimizers(CASES["saved"].optimizers, net)
    if len(states) != len(optimizers):
        lacks(f"the file holds the state of {len(states)} optimizers, and there are {len(optimizers)}")
    for optimizer, state in zip(optimizers, states, strict=True):
        try:
            optimizer.load_state_dict(state)
        except (ValueError, KeyError, TypeError) as error:
            lacks(f"a plain optimizer cannot load its state: {type(error).__name__}: {error}")
        for name, parameter in net.named_parameters():
            moment = optimizer.state[parameter].get("exp_avg") if parameter in optimizer.state else None
            if moment is None or moment.shape != parameter.shape or not bool(moment.any()):
                lacks(f"the optimizer state of {name} is missing or empty")


def saved(judge: Judge) -> Facts:
    """Return the facts of the run that wrote the checkpoints."""
    judge.sound()
    facts = judge.lab.facts("saved")
    if facts.error:
        lacks(told(facts))
    return facts


def goes_on(judge: Judge, name: str) -> None:
    """Compare the steps of the run ``name`` with the same steps of the run that it goes on from."""
    unbroken = saved(judge)
    if judge.ranks_differ(unbroken):
        cannot_judge("the ranks of the unbroken run differ")
    facts = judge.ran(name)
    first = facts.ranks[0]["first_step"]
    steps = facts.ranks[0]["steps"]
    rest = unbroken.ranks[0]["steps"][first:]
    if not first or len(steps) != len(rest):
        lacks(f"it goes on with step {first + 1} and makes {len(steps)} steps, and {len(rest)} are left")
    alike = name == "resumed"  # the others have another strategy, or fewer devices
    if not alike:
        judge.need_comparison(UNLIKE)
    if unbroken.hold_parts:
        pairs = [([facts.home], [unbroken.home])]
    else:  # rank by rank, for they may hold different weights; one that goes on alone follows rank 0
        several = zip(facts.ranks, unbroken.ranks, strict=alike)
        pairs = [(mine["steps"], other["steps"][first:]) for mine, other in several]
    tolerance = judge.tolerance(unbroken)
    problems = [first_difference(*pair, tolerance, "the unbroken run") for pair in pairs]
    problem = next(filter(None, [*problems, judge.ranks_differ(facts)]), "")
    if problem:
        lacks(f"resumed with step {first + 1}: {problem}")


def _plain_names(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name.removeprefix("sequential_module."): value for name, value in state.items()}

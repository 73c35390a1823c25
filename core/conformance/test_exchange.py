"""What ranks exchange: gradients, values, objects, and that they are there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core.conformance.cases import CASES
from core.conformance.checks import check, lacks, leave
from core.conformance.judge import Judge
from core.conformance.probes import MEETING, OPS, contribution
from core.conformance.programs import Facts
from core.conformance.setup import EQUAL, one_device

PARTS = "ranks hold parts of one model"
ONE = "one rank runs the loop"


@check("strategy", claims=EQUAL, several=True)
def test_ranks_agree_after_every_step(judge: Judge) -> None:
    """All ranks hold the same parameters after every optimizer step."""
    facts = judge.ran("plain")
    if facts.hold_parts:
        leave(PARTS)
    problem = judge.ranks_differ(facts)
    if problem:
        lacks(problem)


@check("strategy", claims="devices.many", hindrance=one_device)
def test_each_sample_is_read_once(judge: Judge) -> None:
    """Each sample of an epoch is read once, over all ranks together, and every rank takes part."""
    facts = judge.ran("plain")
    expected = facts.ranks[0]["loop_ranks"]
    if len(facts.ranks) != expected:
        lacks(f"{len(facts.ranks)} ranks trained, and {expected} run the loop")
    parts = [frozenset(number for _, numbers in record["batches"] for number in numbers) for record in facts.ranks]
    read = sorted(number for part in set(parts) for number in part)
    if read != list(range(len(read))):
        lacks(f"these samples were read, by one rank or another, and not each of the first {len(read)} once: {read}")


@check("strategy", several=True)
def test_processes(judge: Judge) -> None:
    """Each rank that runs the loop has a process of its own, started the way the plan says."""
    facts = judge.ran("plain")
    pids = {record["pid"] for record in facts.ranks}
    ways = {record["launch"] for record in facts.ranks}
    if len(pids) != facts.ranks[0]["loop_ranks"]:
        lacks(f"{len(pids)} processes ran {len(facts.ranks)} ranks, and {facts.ranks[0]['loop_ranks']} run the loop")
    if ways != {judge.setup.plan.launch.how}:
        lacks(f"the ranks were started by {', '.join(sorted(ways))}, and the plan says {judge.setup.plan.launch.how}")


@check("strategy", claims="grad_sync.skip", several=True)
def test_gradients_are_exchanged_once_per_window(judge: Judge) -> None:
    """Gradients are exchanged at the last micro-batch of each window, and not before it."""
    judge.sound()
    facts = judge.ran("accumulated")
    case = CASES["accumulated"]
    if facts.hold_parts:
        leave(PARTS)
    problem = judge.ranks_differ(facts)
    if problem:
        lacks(problem)
    for number, gradients in enumerate(zip(*(record["gradients"] for record in facts.ranks), strict=True)):
        place = number % case.micro_batches
        ends_window = (place + 1) % case.window == 0 or place + 1 == case.micro_batches
        known = [gradient for gradient in gradients if gradient is not None]
        if not ends_window and len(known) > 1 and all(torch.equal(known[0], other) for other in known[1:]):
            lacks(f"after micro-batch {place + 1}, inside a window of {case.window}, ranks hold the same gradients")


@check("strategy", claims="sharded.optimizer", several=True)
def test_optimizer_state_is_sharded(judge: Judge) -> None:
    """No rank holds the whole optimizer state."""
    judge.sound()
    held = [record["state_bytes"] for record in judge.ran("groups").ranks]
    if max(held) >= sum(held):
        lacks(f"the ranks hold {held} bytes of state: one holds it all")
    whole = 2 * bytes_of(judge.ran("groups"))  # Adam keeps two numbers for each
    if max(held) >= whole:
        lacks(f"the ranks hold {held} bytes of state, and all of it are {whole}")


@check("strategy", claims="sharded.gradients", several=True)
def test_gradients_are_sharded(judge: Judge) -> None:
    """When the optimizer steps, no rank holds all gradients."""
    facts = judge.sound()
    whole = bytes_of(facts)
    held = [max(record["gradient_bytes"]) for record in facts.ranks]
    if max(held) >= whole:
        lacks(f"the ranks hold {held} bytes of gradients, and all of them are {whole}")


@check("strategy", claims="sharded.parameters", several=True)
def test_parameters_are_sharded(judge: Judge) -> None:
    """Between steps, no rank holds all parameters."""
    facts = judge.sound()
    whole = bytes_of(facts)
    held = [record["parameter_bytes"] for record in facts.ranks]
    if max(held) >= whole:
        lacks(f"the ranks hold {held} bytes of parameters, and all of them are {whole}")


@check("strategy")
@pytest.mark.parametrize("values", ["floats", "integers"])
@pytest.mark.parametrize("op", OPS)
def test_reduce(judge: Judge, op: str, values: str) -> None:
    """Reducing gives every rank the sum, mean, minimum or maximum, in the same shape, and leaves its argument alone."""
    facts = exchanged(judge)
    given = torch.stack([contribution(rank, values) for rank in range(len(facts.answers))]).double()
    expected = {"sum": given.sum(0), "mean": given.mean(0), "min": given.amin(0), "max": given.amax(0)}[op]
    for rank, answers in enumerate(facts.answers):
        answer = value_of(answers[f"{op} of {values}"], rank)
        result = answer["result"]
        if result.shape != expected.shape or not torch.allclose(result.double(), expected, rtol=1e-6):
            lacks(f"rank {rank} got {result.tolist()} as the {op} of {given.tolist()}, not {expected.tolist()}")
        if not answer["unchanged"]:
            lacks(f"rank {rank} finds its argument changed")


@check("strategy", several=True)
def test_broadcast(judge: Judge) -> None:
    """Broadcasting gives every rank the object that rank 0 has, tensors in it included."""
    facts = exchanged(judge)
    if len(facts.answers) == 1:
        leave(ONE)
    for rank, answers in enumerate(facts.answers):
        answer = value_of(answers["broadcast"], rank)
        if answer["rank"] != 0 or answer["text"] != "kit" or answer["tensor"].tolist() != [0.0, 0.0]:
            lacks(f"rank {rank} got {answer}")


@check("strategy", several=True)
def test_barrier_waits_for_all(judge: Judge) -> None:
    """A barrier lets no rank go before the last one has come."""
    facts = exchanged(judge)
    if len(facts.answers) == 1:
        leave(ONE)
    for rank, answers in enumerate(facts.answers):
        if not value_of(answers["barrier"], rank):
            lacks(f"rank {rank} went on before the last rank had come")


@check("strategy", several=True)
def test_barrier_names_who_is_missing(judge: Judge) -> None:
    """A barrier that waits in vain raises WaitTimeout, with its own name and the rank that did not come."""
    judge.running()
    facts = judge.ran("missing")
    *others, last = range(len(facts.answers))
    if not others:
        leave(ONE)
    for rank in others:
        message = value_of(facts.answers[rank]["barrier"], rank)
        if not message:
            lacks(f"rank {rank} waited in vain and nothing was raised")
        if MEETING not in message:
            lacks(f"the error does not name the meeting point {MEETING!r}: {message}")
        if f"rank {last}" not in message:
            lacks(f"the error does not name rank {last}, which did not come: {message}")


def exchanged(judge: Judge) -> Facts:
    """Return the facts of the run in which the ranks exchanged values."""
    judge.running()
    return judge.ran("exchange")


def bytes_of(facts: Facts) -> int:
    """Return the bytes of all parameters."""
    return sum(value.numel() * value.element_size() for value in facts.ranks[0]["steps"][-1].values())


def value_of(answer: dict[str, Any], rank: int) -> Any:
    """Return what a trial came to; end the check where it raised."""
    if "error" in answer:
        lacks(f"on rank {rank} it raised {answer['error']}")
    return answer["value"]

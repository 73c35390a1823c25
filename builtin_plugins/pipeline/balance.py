"""How many layers each stage of a pipeline gets: given, or inferred from what the layers cost."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from builtin_plugins.pipeline.layers import layer_tensors
from core.errors import InvalidArgument, WrongType

INFERRED = ("parameters", "time")
REPEATS = 3


def check_balance(balance: object) -> str | tuple[int, ...]:
    """Return ``balance`` in its one form: ``"parameters"``, ``"time"``, or a tuple of layer counts.

    Raises:
        InvalidArgument: for another word, an empty list, or a count below 1.
        WrongType: for anything else.
    """
    if isinstance(balance, str):
        if balance not in INFERRED:
            raise InvalidArgument(f"balance {balance!r} must be 'parameters', 'time', or a list of layers per stage")
        return balance
    if not isinstance(balance, Sequence) or not all(isinstance(n, int) and not isinstance(n, bool) for n in balance):
        raise WrongType(f"balance must be 'parameters', 'time', or a list of whole numbers, not {balance!r}")
    counts = tuple(balance)
    if not counts or min(counts) < 1:
        raise InvalidArgument(f"balance {list(counts)} must give every stage at least one layer")
    return counts


def check_layers(balance: str | tuple[int, ...], stages: int, sequential: nn.Sequential) -> None:
    """Refuse a balance that does not fit the number of stages and layers.

    Raises:
        InvalidArgument: with both numbers.
    """
    layers = len(sequential)
    if not isinstance(balance, str) and len(balance) != stages:
        raise InvalidArgument(f"balance {list(balance)} is for {len(balance)} stages, but the run has {stages}")
    if not isinstance(balance, str) and sum(balance) != layers:
        raise InvalidArgument(
            f"balance {list(balance)} is for {sum(balance)} layers, but the sequential has {layers}\n"
            "  hint: leave balance out to have it inferred"
        )
    if layers < stages:
        raise InvalidArgument(f"{layers} layers cannot be cut into {stages} stages; take fewer stages")


def split_costs(costs: Sequence[float], parts: int) -> tuple[int, ...]:
    """Return how many of the ``costs`` each of ``parts`` runs of neighbours takes, so that the dearest is cheapest."""
    sums = [0.0, *accumulate(costs)]
    # best[i]: the first i costs in so many parts; (cost of the dearest part, counts)
    best: list[tuple[float, tuple[int, ...]] | None] = [(sums[i], (i,)) if i else None for i in range(len(sums))]
    for _ in range(parts - 1):
        new: list[tuple[float, tuple[int, ...]] | None] = [None] * len(sums)
        for end in range(1, len(sums)):
            for start in range(1, end):
                before = best[start]
                if before is None:
                    continue
                dearest = max(before[0], sums[end] - sums[start])
                known = new[end]
                if known is None or dearest < known[0]:
                    new[end] = (dearest, (*before[1], end - start))
        best = new
    found = best[-1]
    assert found is not None, "checked before: at least one layer for each part"
    return found[1]


def infer(how: str, stages: int, sequential: nn.Sequential, example: object, device: torch.device) -> tuple[int, ...]:
    """Return the balance that makes the stages most alike in parameters, or in time on ``device``."""
    layers = list(sequential)
    costs = times(layers, example, device) if how == "time" else [sizes(layer) for layer in layers]
    return split_costs(costs, stages)


def sizes(layer: nn.Module) -> float:
    """Return the number of elements of a layer's parameters, and a little for the layer itself."""
    return 1.0 + sum(tensor.numel() for tensor in layer_tensors(layer).values())


def check_example(example: object) -> Tensor:
    """Return the tensor in a module's ``example_input_array``.

    Raises:
        InvalidArgument: when there is none.
    """
    if isinstance(example, list | tuple) and len(example) == 1:
        example = example[0]
    if not isinstance(example, Tensor):
        raise InvalidArgument(
            f"balance='time' runs the layers on the module's example_input_array, which is {type(example).__name__}\n"
            "  hint: set self.example_input_array to a tensor that the sequential takes"
        )
    return example


def times(layers: Sequence[nn.Module], example: object, device: torch.device) -> list[float]:
    """Return the seconds that forward and backward of each layer take, the least of a few tries.

    Copies of the layers run, so that nothing of theirs changes; nor do random numbers.
    """
    value = check_example(example).detach().to(device)
    if value.is_floating_point():  # a precision may have brought the layers to another format
        formats = (p.dtype for layer in layers for p in layer.parameters() if p.is_floating_point())
        value = value.to(next(formats, value.dtype))
    costs = []
    with torch.random.fork_rng(), torch.enable_grad():
        for layer in layers:
            twin = copy.deepcopy(layer).to(device)
            tries = [_time(twin, value, device) for _ in range(1 + REPEATS)]
            costs.append(min(seconds for seconds, _ in tries[1:]))
            value = tries[-1][1]
    return costs


def _time(layer: nn.Module, value: Tensor, device: torch.device) -> tuple[float, Tensor]:
    given = value.detach()
    if given.is_floating_point():
        given.requires_grad_()
    _wait_for(device)
    start = time.perf_counter()
    out = layer(given)
    if out.requires_grad:
        out.sum().backward()
    _wait_for(device)
    return time.perf_counter() - start, out.detach()


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

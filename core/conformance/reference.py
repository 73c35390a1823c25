"""The hand-written loop: one process, plain torch, over the samples that all ranks together have read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from core.conformance.cases import Case
from core.conformance.model import Net, loss_of, make_optimizers, samples_of

Weights = dict[str, Tensor]
Epoch = Sequence[Sequence[int]]
"""The numbers of the samples of each micro-batch, over all ranks."""

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""How far a parameter may be from the reference, by the coarsest number format that the run computes in."""
COARSEST = 0.25
"""The same for formats that are not in the table, of 8 bits and less."""


class Arithmetic(NamedTuple):
    """The number formats of the weights and, under autocast, of the forward pass."""

    weights: torch.dtype = torch.float32
    autocast: torch.dtype | None = None


def tolerance_of(*formats: torch.dtype) -> float:
    """Return the tolerance for a run that computes in these formats."""
    return max(TOLERANCE.get(dtype, COARSEST) for dtype in formats)


def by_hand(
    case: Case, epochs: Sequence[Epoch], count: int, arithmetic: Arithmetic, skipped: Collection[int] = ()
) -> list[Weights]:
    """Train ``case`` and return the parameters after each step.

    Args:
        case: what is trained.
        epochs: the samples of each micro-batch.
        count: samples of the data set.
        arithmetic: number formats.
        skipped: numbers of the steps, from 0, that loss scaling skipped.
    """
    net = Net(case.sync_batchnorm).to(arithmetic.weights)
    optimizers = make_optimizers(case.optimizers, net)
    features, targets, _ = (tensor for tensor in samples_of(case, count).tensors)
    features, targets = features.to(arithmetic.weights), targets.to(arithmetic.weights)

    def loss_on(chosen: Sequence[int]) -> Tensor:
        with torch.autocast(features.device.type, dtype=arithmetic.autocast) if arithmetic.autocast else nullcontext():
            return loss_of(net, features[list(chosen)], targets[list(chosen)])

    steps: list[Weights] = []
    for epoch in epochs:
        for start in range(0, len(epoch), case.window):
            window = epoch[start : start + case.window]
            if case.optimizers == "lbfgs":
                _closure_step(optimizers[0], partial(loss_on, window[0]))
            else:
                for chosen in window:
                    (loss_on(chosen) / len(window)).backward()  # type: ignore[no-untyped-call]
                _step(case, optimizers, skip=len(steps) in skipped)
            steps.append({name: p.detach().clone() for name, p in net.named_parameters()})
    return steps


def _step(case: Case, optimizers: Sequence[torch.optim.Optimizer], *, skip: bool) -> None:
    for optimizer in optimizers:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if case.clip and case.algorithm == "norm":
            nn.utils.clip_grad_norm_(parameters, case.clip)
        elif case.clip:
            nn.utils.clip_grad_value_(parameters, case.clip)
        if not skip:
            optimizer.step()
    for optimizer in optimizers:
        optimizer.zero_grad()


def _closure_step(optimizer: torch.optim.Optimizer, loss_of_window: Callable[[], Tensor]) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of_window()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]  # torch asks for float, its own LBFGS takes tensors


def difference(ours: Weights, theirs: Weights, tolerance: float) -> str:
    """Return how two sets of parameters differ by more than ``tolerance``, relative above 1; "" when they do not."""
    if set(ours) != set(theirs):
        return f"the parameters are {sorted(ours)}, and {sorted(theirs)} are expected"
    worst, where = 0.0, ""
    for name, value in ours.items():
        expected = theirs[name].double()
        if value.shape != expected.shape:
            return f"parameter {name} has shape {tuple(value.shape)}, and {tuple(expected.shape)} is expected"
        apart = ((value.double().cpu() - expected).abs() / expected.abs().clamp(min=1)).nan_to_num(float("inf")).max()
        if apart > worst:
            worst, where = float(apart), name
    return "" if worst <= tolerance else f"parameter {where} differs by {worst:.2g} (tolerance {tolerance:g})"

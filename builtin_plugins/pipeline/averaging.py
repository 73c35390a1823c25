"""Gradients and weights of several processes: averaged, made alike, clipped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.optim import Optimizer


def average_gradients(parameters: Sequence[Tensor], group: dist.ProcessGroup | None, device: torch.device) -> None:
    """Average the gradients of ``parameters`` over ``group``; every process of it calls this.

    A gradient that is missing on some processes counts as zero; one that is missing on all stays missing.
    """
    count = dist.get_world_size(group)
    if count == 1 or not parameters:
        return
    there = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8, device=device)
    dist.all_reduce(there, dist.ReduceOp.MAX, group)
    chosen = [parameter for parameter, has in zip(parameters, there.tolist(), strict=True) if has]
    for parameter in chosen:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for alike in _by_type(parameter.grad for parameter in chosen if parameter.grad is not None):
        flat: Tensor = _flatten_dense_tensors(alike)  # type: ignore[no-untyped-call]
        dist.all_reduce(flat, dist.ReduceOp.SUM, group)
        flat.div_(count)
        parts = _unflatten_dense_tensors(flat, alike)  # type: ignore[no-untyped-call]
        for gradient, averaged in zip(alike, parts, strict=True):
            gradient.copy_(averaged)


def same_everywhere(tensors: Iterable[Tensor], group: dist.ProcessGroup | None, device: torch.device) -> None:
    """Give every process of ``group`` the values that its first one has; every process of it calls this."""
    if dist.get_world_size(group) == 1:
        return
    first = 0 if group is None else dist.get_global_rank(group, 0)
    for tensor in tensors:
        moved = tensor.detach().to(device).contiguous()
        dist.broadcast(moved, first, group)
        tensor.data.copy_(moved)


def clip_by_value(gradients: Iterable[Tensor], value: float) -> None:
    """Clip gradients by value; torch's own function fails where an optimizer has none on this rank."""
    for gradient in gradients:
        gradient.clamp_(-value, value)


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the gradients that are here of the parameters of ``optimizer``."""
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def square_sum(gradients: Iterable[Tensor]) -> float:
    """Return the sum of the squares of all elements."""
    return sum(float(torch.linalg.vector_norm(gradient, dtype=torch.float64)) ** 2 for gradient in gradients)


def clip_factor(square: float, value: float) -> float:
    """Return what gradients with this sum of squares are multiplied by so that their norm is ``value`` at most."""
    norm = math.sqrt(square)
    return norm if math.isnan(norm) else min(1.0, value / (norm + 1e-6))


def _by_type(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    found: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.dtype, []).append(tensor)
    return list(found.values())

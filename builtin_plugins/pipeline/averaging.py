"""Gradients and weights that several processes hold alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


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


def _by_type(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    found: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.dtype, []).append(tensor)
    return list(found.values())

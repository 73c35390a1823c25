"""Bring the tensors of all ranks together, with gradients where they are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core.data.nested import map_tensors

if TYPE_CHECKING:
    from core.loops.run import Run


def gather_tensors(run: Run, data: Any, sync_grads: bool) -> Any:
    """See :meth:`core.module.Module.all_gather`."""
    data = map_tensors(data, lambda number: torch.tensor(number, device=run.device), (bool, int, float))
    if run.ranks.world_size == 1:
        return data

    def gather(tensor: Tensor) -> Tensor:
        if sync_grads and tensor.requires_grad:
            return _Gather.apply(tensor, run)  # type: ignore[no-any-return, no-untyped-call]
        return rows_of_ranks(run, tensor.detach())

    return map_tensors(data, gather)


def rows_of_ranks(run: Run, tensor: Tensor) -> Tensor:
    """Return a table with the ``tensor`` of each rank in the row of its number; all ranks call it, with equal shapes.

    It needs only the hook ``reduce``, as each rank writes its own row among zeros.
    """
    truth = tensor.dtype is torch.bool  # which cannot be added up
    dtype = torch.uint8 if truth else tensor.dtype
    table = torch.zeros(run.ranks.world_size, *tensor.shape, dtype=dtype, device=run.device)
    table[run.ranks.global_rank] = tensor
    gathered: Tensor = run.hooks.reduce(table, "sum")
    return gathered.to(torch.bool) if truth else gathered


class _Gather(torch.autograd.Function):
    """Gathers in forward; in backward each rank gets what all ranks have for its own part."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, run: Run) -> Tensor:
        ctx.run = run
        return rows_of_ranks(run, tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        run = ctx.run
        return run.hooks.reduce(gradients[0].contiguous(), "sum")[run.ranks.global_rank], None

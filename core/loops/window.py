"""The gradients of an accumulation window that a checkpoint is written in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from core.loops.run import Run


def gradients_so_far(run: Run) -> dict[str, Tensor] | None:
    """Return the gradients of the micro-batches since the last optimizer step, by parameter; every rank calls it.

    They are averaged over the ranks: each goes on with the average, and what the ranks exchange at the end of the
    window is the same. None where no window is open.
    """
    loop = run.loop
    if loop is None or loop.step.window_starts:
        return None
    named = {name: p for name, p in run.module.named_parameters() if p.requires_grad}
    if any(type(p.grad) not in (Tensor, type(None)) for p in named.values()):
        run.trainer.warn("a checkpoint inside an accumulation window: the gradients of its micro-batches are not in it")
        return None
    reduce, device = run.hooks.reduce, run.device
    # ranks can differ in the parameters that they used
    used = reduce(torch.tensor([p.grad is not None for p in named.values()], dtype=torch.int32, device=device), "max")
    return {
        name: reduce(torch.zeros_like(p) if p.grad is None else p.grad, "mean").detach()
        for (name, p), anywhere in zip(named.items(), used.tolist(), strict=True)
        if anywhere
    }


def go_on_in_window(run: Run, gradients: dict[str, Tensor] | None) -> None:
    """Take back what :func:`gradients_so_far` returned."""
    if gradients and run.loop is not None:
        named = dict(run.module.named_parameters())
        for name, gradient in gradients.items():
            named[name].grad = gradient.to(named[name].device, copy=True)
        run.loop.step.window_starts = False

"""Replicas of one model in threads, written by hand: what ``dp`` and ``ddp2`` are measured against."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from step_overhead import make_net
from timing import Clock
from torch import nn


def replicas_by_hand(clock: Clock, loader, replicas: int) -> None:
    """Split each batch over threads, average their gradients, and in a process group those of all processes."""
    net = make_net()
    parameters = list(net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def replica(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(nn.functional.cross_entropy(net(x), y), parameters)

    with ThreadPoolExecutor(replicas) as pool:
        for x, y in loader:
            clock.tick()
            parts = pool.map(replica, x.chunk(replicas), y.chunk(replicas))
            gradients = [torch.stack(several).mean(0) for several in zip(*parts, strict=True)]
            if dist.is_initialized():
                exchange(gradients)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
            optimizer.zero_grad()


def exchange(gradients: Sequence[torch.Tensor]) -> None:
    """Average the gradients over the processes, in one exchange for all."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))

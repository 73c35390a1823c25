"""Two stages over torch.distributed.rpc, written by hand: what ``rpc`` and ``rpc_sequential`` are measured against.

Rank 0 drives; rank 1 serves the second stage. The RPC world is the one that an Interlock run of the same program has
entered, since torch has one for each process.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from step_overhead import make_net
from timing import Clock
from torch import nn
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer


class Stage(nn.Module):
    """Some of the layers, on the rank that makes it."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__()
        self.layers = make_net()[begin:end]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

    def references(self) -> list[rpc.RRef]:
        """Return a reference to each parameter, for an optimizer elsewhere."""
        return [rpc.RRef(parameter) for parameter in self.parameters()]


def tick_for_server(clock: Clock) -> None:
    """Let a rank that only serves count to the end; its figure is not looked at."""
    while clock._count < clock.total:
        clock.tick()


def rpc_stages_by_hand(clock: Clock, loader, stages: tuple[tuple[int, int], ...], micro_batches: int) -> None:
    if dist.get_rank() == 0:
        first = Stage(*stages[0])
        second = rpc.remote("worker1", Stage, stages[1])
        references = first.references() + second.rpc_sync().references()
        optimizer = DistributedOptimizer(torch.optim.SGD, references, lr=0.01)
        for x, y in loader:
            clock.tick()
            with autograd.context() as context:
                waiting = [second.rpc_async().forward(first(part)) for part in x.chunk(micro_batches)]
                parts = [future.wait() for future in waiting]
                losses = [
                    nn.functional.cross_entropy(*pair) for pair in zip(parts, y.chunk(micro_batches), strict=True)
                ]
                autograd.backward(context, [torch.stack(losses).mean()])
                optimizer.step(context)
    tick_for_server(clock)
    dist.barrier()  # who serves stays until all is asked

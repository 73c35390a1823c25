"""Replicas on several devices with memories of their own, run by the machinery of torch's DataParallel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import parallel_apply, replicate

from core.data.chunks import Chunk, weighted_mean
from core.data.nested import map_tensors
from core.parallel.replicas.ambient import Ambient
from core.parallel.replicas.replica import Outcome, run_replica


class DeviceReplicas:
    """Copies the module to each device in every step, and runs the copies in threads.

    The copies are part of autograd's graph, so gradients come back to the one module by themselves.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = list(devices)

    def run(self, module: nn.Module, chunks: Sequence[Chunk], rest: tuple[Any, ...]) -> list[Outcome]:
        """See :class:`~core.parallel.replicas.step.Replicas`."""
        devices = self._devices[: len(chunks)]
        copies = replicate(module, devices, detach=not torch.is_grad_enabled())
        ambient = Ambient(devices[0].type)
        batches = [
            map_tensors(chunk.batch, partial(Tensor.to, device=device, non_blocking=True))
            for chunk, device in zip(chunks, devices, strict=True)
        ]
        steps: list[Any] = [partial(run_replica, copy, ambient) for copy in copies]
        outcomes = parallel_apply(steps, [(batch, rest) for batch in batches], devices=devices)
        return [outcome for outcome in outcomes if isinstance(outcome, Outcome)]

    def joined_loss(self, losses: list[Tensor], sizes: list[int], module: nn.Module) -> Tensor:
        """See :class:`~core.parallel.replicas.step.Replicas`."""
        return weighted_mean([loss.to(losses[0].device) for loss in losses], sizes)

    def close(self) -> None:
        """Hold nothing between steps."""

"""Data parallel by sharding annotations: the compiler cuts the batch and exchanges gradients."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch
import torch_xla.distributed.spmd as spmd
from torch import Tensor
from torch_xla import runtime

from core.data.nested import map_tensors
from core.errors import InvalidArgument
from core.plugins import Strategy, hookimpl
from core.session import Ranks

BATCH = "batch"


class SPMDStrategy(Strategy):
    """The loader gives whole batches; their first axis is split over the devices, and losses are those of the whole.

    A tensor whose first axis is not a multiple of the number of devices, such as the last batch of an epoch, is kept
    whole on each of them: the result is the same.
    """

    @hookimpl(wrapper=True)
    def setup_device(self, ranks: Ranks) -> Generator[None, torch.device, torch.device]:
        runtime.use_spmd()  # before the owner takes the device, which then stands for all of them
        device = yield
        here = runtime.global_runtime_device_count()
        asked = self.plan.num_devices * self.plan.num_nodes
        if asked != here:
            raise InvalidArgument(
                f"strategy {self.plan.strategy.name!r} uses all devices of the runtime, which are {here}, "
                f"not {asked}\n  hint: devices={here}"
            )
        self._count = here
        self._mesh = spmd.Mesh(list(range(here)), (here,), (BATCH,))
        return device

    @hookimpl(wrapper=True)
    def transfer_batch(self, batch: Any, device: torch.device) -> Generator[None, Any, Any]:
        moved = yield
        return map_tensors(moved, self._split)

    def _split(self, tensor: Tensor) -> Tensor:
        if tensor.dim() and tensor.shape[0] and tensor.shape[0] % self._count == 0:
            spmd.mark_sharding(tensor, self._mesh, (BATCH, *(None for _ in tensor.shape[1:])))
        return tensor

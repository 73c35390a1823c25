"""Keep buffers, such as running averages, the same on every rank where it can be seen."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn


class Buffers:
    """The buffers of a module, of which rank 0's count, as under DistributedDataParallel.

    Training steps change each rank's own. They are made equal when the module is sharded, before the first evaluation
    step after training, and when :meth:`agree` is called.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._differ = True
        self.agree()
        module.register_forward_pre_hook(self._before_forward)

    def _before_forward(self, module: nn.Module, _: Any) -> None:
        if module.training:
            self._differ = True
        else:
            self.agree()

    def agree(self) -> None:
        """Give every rank the buffers of rank 0; every rank calls it, and nothing is sent where nothing changed."""
        if self._differ:
            for buffer in self._module.buffers():
                dist.broadcast(buffer.detach(), src=0)
        self._differ = False

"""Base class of accelerators: the hardware that tensors live on."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from core.data.nested import map_tensors
from core.hookspecs import hookimpl
from core.plugins.base import Plugin
from core.session import Ranks


class Accelerator(Plugin):
    """Hardware. A subclass implements ``setup_device``; batches are moved by ``Tensor.to``."""

    inference_mode: ClassVar[bool] = True
    """Whether ``torch.inference_mode`` works on the device; where not, evaluation runs without gradients only."""

    def device_index(self, ranks: Ranks) -> int:
        """Return the index of this process's device on its node, honouring ``devices=[...]``."""
        picked = self.plan.devices
        return picked[ranks.local_rank] if picked is not None else ranks.local_rank

    @hookimpl
    def transfer_batch(self, batch: Any, device: torch.device) -> Any:
        return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))

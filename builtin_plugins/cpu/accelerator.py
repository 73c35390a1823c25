"""Training in host memory."""

from __future__ import annotations

from typing import Any

import torch

from core.plugins import Accelerator, hookimpl
from core.plugins.base import does_nothing
from core.session import Ranks


class CPUAccelerator(Accelerator):
    """Tensors stay where the loader put them."""

    @hookimpl
    def setup_device(self, ranks: Ranks) -> torch.device:
        return torch.device("cpu")

    @hookimpl
    @does_nothing
    def transfer_batch(self, batch: Any, device: torch.device) -> Any:
        return batch

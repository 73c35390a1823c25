"""Training on NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Generator

import torch

from core.plugins import Accelerator, hookimpl
from core.session import Ranks


class CUDAAccelerator(Accelerator):
    """One GPU per process, chosen by local rank or from ``devices=[...]``."""

    @hookimpl
    def setup_device(self, ranks: Ranks) -> torch.device:
        device = torch.device("cuda", self.device_index(ranks))
        torch.cuda.set_device(device)
        return device

    @hookimpl(wrapper=True)
    def teardown(self) -> Generator[None, None, None]:
        yield
        torch.cuda.empty_cache()

"""The simulated device as an accelerator."""

from __future__ import annotations

import torch

from core.errors import InvalidArgument
from core.plugins import Accelerator, hookimpl
from core.session import Ranks
from interlock_simdevice import collectives, device
from interlock_simdevice.memory import NAME, memory


class SimAccelerator(Accelerator):
    """One simulated device per process.

    Args:
        memory_mb: how much a process may hold on its device, in units of 2**20 bytes; None has no limit. What goes
            beyond raises ``torch.OutOfMemoryError``, as a GPU would.

    Raises:
        InvalidArgument: for a budget that is not above zero.
    """

    def __init__(self, memory_mb: float | None = None) -> None:
        if memory_mb is not None and not memory_mb > 0:
            raise InvalidArgument(f"memory_mb must be above 0 or None, not {memory_mb!r}")
        self.memory_mb = memory_mb

    @hookimpl
    def setup_device(self, ranks: Ranks) -> torch.device:
        device.register()
        collectives.register()
        memory.set_limit(None if self.memory_mb is None else int(self.memory_mb * 2**20))
        return torch.device(NAME)

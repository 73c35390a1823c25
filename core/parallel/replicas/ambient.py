"""What torch keeps for each thread, taken over by the threads that run replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context

import torch


class Ambient:
    """The gradient mode and the autocast of the thread that makes it, and its context variables.

    Args:
        device_type: the type of device whose autocast counts, beside the host's.
    """

    def __init__(self, device_type: str) -> None:
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._cache = torch.is_autocast_cache_enabled()
        self._autocast = {
            kind: torch.get_autocast_dtype(kind)
            for kind in {device_type, torch.empty(0).device.type}
            if torch.is_autocast_enabled(kind)
        }
        self._variables = copy_context()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put this thread into the surroundings that were taken."""
        for variable, value in self._variables.items():
            variable.set(value)
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self._inference))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            for kind, dtype in self._autocast.items():
                stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=self._cache))
            yield

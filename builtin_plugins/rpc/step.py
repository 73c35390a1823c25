"""A training step whose forward and backward go over several processes."""

from __future__ import annotations

from typing import Any

import torch.distributed.autograd as dist_autograd
from torch import Tensor, nn

from builtin_plugins.rpc.handles import ask_all, touched
from builtin_plugins.rpc.service import commit
from core.errors import InterlockError


class DistributedStep(nn.Module):
    """Calling it runs a step inside a context of distributed autograd, which its backward closes.

    Args:
        router: calling it runs the user's step.
        timeout: seconds that a request may take.
    """

    def __init__(self, router: nn.Module, timeout: float) -> None:
        super().__init__()
        self.router = router
        self._timeout = timeout
        self._context: Any = None
        self._number = 0

    def forward(self, *arguments: Any) -> Any:
        self.close()
        self._context = dist_autograd.context()
        self._number = self._context.__enter__()
        touched.clear()
        return self.router(*arguments)

    def backward(self, loss: Tensor, scale: float = 1.0) -> None:
        """Run backward on all ranks and add the gradients to the parameters; those of other ranks times ``scale``."""
        if self._context is None:
            raise InterlockError("backward was called without a training step before it")
        try:
            dist_autograd.backward(self._number, [loss])
            ask_all([(worker, ("commit", self._number, scale)) for worker in sorted(touched)], self._timeout)
            commit(self._number, 1.0)
        finally:
            self.close()

    def close(self) -> None:
        """Close the context, if there is one."""
        if self._context is not None:
            context, self._context = self._context, None
            context.__exit__(None, None, None)

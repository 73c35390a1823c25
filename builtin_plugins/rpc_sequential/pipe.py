"""What a sequential does when its layers live on several workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from builtin_plugins.rpc.handles import Handle, wait
from core.errors import InterlockError


class RemoteStage(NamedTuple):
    """A stage on a worker, and its likeness here."""

    handle: Handle
    likeness: nn.Module


class Pipe:
    """Stands for the sequential's ``forward``: cuts the batch and sends the micro-batches through the stages.

    While a worker runs one micro-batch, the stage before runs the next. What a stage gives goes to the next one
    directly: each is sent a reference to what the stage before will have.

    Args:
        first: the stage that is here.
        others: the stages on workers, in order.
        micro_batches: how many are in flight at most.
    """

    def __init__(self, first: nn.Module, others: Sequence[RemoteStage], micro_batches: int) -> None:
        self._first, self._others, self._micro_batches = first, others, micro_batches
        self._sent = 0

    def __call__(self, value: Any) -> Tensor:
        if not isinstance(value, Tensor) or value.ndim == 0:
            what = "a tensor without dimensions" if isinstance(value, Tensor) else type(value).__name__
            raise InterlockError(
                f"the sequential was given {what}, which cannot be cut into micro-batches\n"
                "  hint: give it one tensor whose first dimension counts the samples of the batch"
            )
        for handle, likeness in self._others:
            handle.mirror(likeness)
        parts = max(1, min(self._micro_batches, value.shape[0]))
        futures = [self._send(self._first(chunk)) for chunk in value.tensor_split(parts)]
        last = self._others[-1].handle.worker
        outputs = [wait(future, last) for future in futures]
        if not all(isinstance(output, Tensor) for output in outputs):
            raise InterlockError(f"the last layer gives a {type(outputs[0]).__name__}; it has to give one tensor")
        return torch.cat(outputs).to(value.device)

    def _send(self, value: Tensor) -> Any:
        """Send one micro-batch through the stages on workers; return the future of what comes out."""
        number, self._sent = self._sent, self._sent + 1
        passed: Any = value.cpu()
        for stage in self._others[:-1]:
            passed = stage.handle.run_there((passed,), number)
        return self._others[-1].handle.run((passed,), {}, number)

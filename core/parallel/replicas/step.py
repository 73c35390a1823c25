"""A step that is run by several replicas: cut the batch, run them, bring together what they return and log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from core.data.chunks import Chunk
from core.data.nested import map_tensors
from core.errors import InterlockError
from core.loops.loss import loss_of, refuse_loss, wrong_outputs
from core.metrics.recording import log_together
from core.parallel.replicas.replica import Outcome


class Replicas(Protocol):
    """Runs replicas of a module."""

    def run(self, module: nn.Module, chunks: Sequence[Chunk], rest: tuple[Any, ...]) -> list[Outcome]:
        """Run ``module`` on each chunk, side by side."""

    def joined_loss(self, losses: list[Tensor], sizes: list[int], module: nn.Module) -> Tensor:
        """Return the mean of the losses weighted by ``sizes``; its backward fills the module's gradients."""

    def close(self) -> None:
        """Give back threads and memory."""


class ReplicatedStep(nn.Module):
    """Calling it runs ``module`` on parts of the batch, one on each of ``devices``, and joins what comes back.

    Args:
        module: takes the batch and more arguments, which go to each replica as they are.
        devices: one for each replica; all the same for logical devices in one memory.
        split: cuts a batch into at most so many chunks.
        join: makes one value of the replicas' outputs, given the chunks' sizes.
    """

    def __init__(
        self,
        module: nn.Module,
        devices: Sequence[torch.device],
        split: Callable[[Any, int], list[Chunk]],
        join: Callable[[list[Any], list[int]], Any],
    ) -> None:
        super().__init__()
        self.module = module
        self._count, self._split, self._join = len(devices), split, join
        self._replicas = _replicas_for(devices)

    def forward(self, batch: Any, *rest: Any) -> Any:
        """Run one step; return what it returned, joined, the loss with its graph and all else without."""
        chunks = self._split(batch, self._count)
        sizes = [chunk.size for chunk in chunks]
        outcomes = self._replicas.run(self.module, chunks, rest)
        log_together([outcome.record for outcome in outcomes])
        outputs = [outcome.outputs for outcome in outcomes]
        losses = losses_of(outputs) if torch.is_grad_enabled() else None
        if losses is None:
            return self._join(outputs, sizes)
        try:
            loss = self._replicas.joined_loss(losses, sizes, self.module)
        except Exception as error:
            for one in losses:
                refuse_loss("training_step returned", one, self.module.parameters(), error)
            raise
        if isinstance(outputs[0], Tensor):
            return loss
        joined = self._join([map_tensors(output, Tensor.detach) for output in outputs], sizes)
        joined["loss"] = loss
        return joined

    def close(self) -> None:
        """Give back the threads that ran the replicas."""
        self._replicas.close()


def _replicas_for(devices: Sequence[torch.device]) -> Replicas:
    if devices[0].index is None:
        from core.parallel.replicas.threads import ThreadReplicas

        return ThreadReplicas(len(devices))
    from core.parallel.replicas.devices import DeviceReplicas

    return DeviceReplicas(devices)


def losses_of(outputs: Sequence[Any]) -> list[Tensor] | None:
    """Return the loss in each replica's outputs; None where no replica has one.

    Raises:
        InterlockError: when some replicas have one and others do not.
        WrongType: for outputs in which a loss could not be replaced.
    """
    losses = [_loss_of(output) for output in outputs]
    missing = [str(i) for i, loss in enumerate(losses) if loss is None]
    if len(missing) == len(losses):
        return None
    if missing:
        raise InterlockError(
            f"the step returned no loss in replica {', '.join(missing)} of {len(losses)}, but one in the others\n"
            "  hint: return a loss of zero that depends on the parameters, such as 0.0 * loss"
        )
    return [loss for loss in losses if loss is not None]


def _loss_of(outputs: Any) -> Tensor | None:
    if isinstance(outputs, Mapping):
        return loss_of(outputs) if "loss" in outputs else None
    if outputs is None or isinstance(outputs, Tensor):
        return outputs
    raise wrong_outputs(outputs)

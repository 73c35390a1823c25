"""torch's DistributedDataParallel with quantized gradients as a strategy."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from core.errors import InvalidArgument
from core.parallel.process_per_device import ProcessPerDeviceStrategy
from core.plugins import WrappedModel, hookimpl
from interlock_quantddp.codec import Codec


class QuantizedDDP(ProcessPerDeviceStrategy):
    """As ddp, but every rank sends its gradients in few bits and adds what was lost to those of the next step.

    Args:
        bits: what one number of a gradient takes, 8 or 4.
        block: numbers that share one scale; an even number.
        start_timeout, timeout: seconds, see :class:`ProcessPerDeviceStrategy`.

    Raises:
        InvalidArgument: for another number of bits, or a block that is not a positive even number.
    """

    def __init__(self, bits: int = 8, block: int = 256, start_timeout: float = 120.0, timeout: float = 600.0) -> None:
        super().__init__(start_timeout, timeout)
        if bits not in (4, 8):
            raise InvalidArgument(f"bits must be 8 or 4, not {bits!r}")
        if not isinstance(block, int) or block < 2 or block % 2:
            raise InvalidArgument(f"block must be an even number of at least 2, not {block!r}")
        self.bits, self.block = bits, block
        self._codec = Codec(bits, block)
        self._wrapped: DistributedDataParallel | None = None
        self._parameters: list[nn.Parameter] = []
        self._lost: dict[nn.Parameter, Tensor] = {}
        self.bytes_sent = 0
        """Bytes that this rank has given to each other rank in this run."""

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        module.to(self.device)
        optimizers = make_optimizers()
        if not optimizers:  # nothing is trained
            return WrappedModel(module, [])
        device_ids = None if self.device.index is None else [self.device.index]
        wrapped = self._wrapped = DistributedDataParallel(module, device_ids=device_ids)
        wrapped.register_comm_hook(None, self._exchange)
        atexit.register(self._let_go)
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._lost, self.bytes_sent = {}, 0
        return WrappedModel(wrapped, optimizers)

    def _exchange(self, _, bucket):  # DDP reads annotations and takes no strings, which they are in this module
        """Average one bucket of gradients; DDP calls it in the same order on every rank."""
        gradients = bucket.gradients()
        messages = []
        # by parameter: DDP orders its buckets anew after the first step, of a resumed run too
        for parameter, gradient in zip(bucket.parameters(), gradients, strict=True):
            if parameter in self._lost:
                gradient.add_(self._lost[parameter])
            messages.append(self._codec.encode(gradient.flatten()))
            self._lost[parameter] = gradient - self._decode(messages[-1], gradient)
        message = torch.cat(messages)
        self.bytes_sent += len(message)
        received = [torch.empty_like(message) for _ in range(self.ranks.world_size)]
        work = dist.all_gather(received, message, async_op=True)
        return work.get_future().then(lambda _: self._average(received, gradients, bucket.buffer()))

    def _decode(self, message: Tensor, like: Tensor) -> Tensor:
        return self._codec.decode(message, like.numel()).view_as(like)

    def _average(self, received: list[Tensor], gradients: list[Tensor], buffer: Tensor) -> Tensor:
        """Fill ``gradients``, which are views of ``buffer``, with the mean of all ranks' messages."""
        sizes = [self._codec.size(gradient.numel()) for gradient in gradients]
        parts = zip(*(message.split(sizes) for message in received), strict=True)
        for gradient, messages in zip(gradients, parts, strict=True):
            gradient.copy_(torch.stack([self._decode(message, gradient) for message in messages]).mean(0))
        return buffer

    @hookimpl
    def skip_gradient_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        return module.no_sync()

    @hookimpl
    def teardown(self) -> None:
        self._let_go()
        super().teardown()

    def _let_go(self) -> None:
        """Drop DDP's reducer before the process group goes: as the group's last holder it could hang the program."""
        atexit.unregister(self._let_go)
        if self._wrapped is not None:
            self._wrapped.reducer = self._wrapped.logger = None
            self._wrapped = None

    def state_dict(self) -> dict[str, Any]:
        """Return what every rank still owes, by the order of the parameters; a checkpoint asks all ranks together."""
        return {"lost": [self._of_all_ranks(self._lost[p]) for p in self._parameters if p in self._lost]}

    def _of_all_ranks(self, tensor: Tensor) -> list[Tensor]:
        """Return every rank's tensor on rank 0, and an empty list on the others."""
        gathered = [torch.empty_like(tensor) for _ in range(self.ranks.world_size)]
        dist.gather(tensor, gathered if self.ranks.global_rank == 0 else None)
        return gathered if self.ranks.global_rank == 0 else []

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the checkpoint was written; on another number of ranks nothing is owed."""
        for parameter, lost in zip(self._parameters, state["lost"], strict=False):
            if len(lost) == self.ranks.world_size:
                self._lost[parameter] = lost[self.ranks.global_rank].to(parameter.device)

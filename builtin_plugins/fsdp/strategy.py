"""torch's fully_shard as a strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.optim import Optimizer

from builtin_plugins.fsdp import state as states
from builtin_plugins.fsdp.buffers import Buffers
from builtin_plugins.fsdp.whole import Original, is_sharded
from builtin_plugins.fsdp.wrap import parts_to_gather
from core.errors import InterlockError, InvalidArgument
from core.parallel.process_per_device import ProcessPerDeviceStrategy
from core.plugins import WrappedModel, hookimpl

T = TypeVar("T")


class FSDPStrategy(ProcessPerDeviceStrategy):
    """Every rank holds its part of each parameter, of its gradient and of the optimizer state.

    A part of the model that is named by ``wrap``, or large enough for ``min_params``, is gathered when it is called
    and freed afterwards; all other parameters are gathered for the whole step. When a run is over, the module is whole
    again on every rank.

    Args:
        wrap: class names of parts that are gathered one at a time.
        min_params: also gather one at a time each part with so many parameters; 0 for none.
        reshard_after_forward: free the parameters of such a part after forward, and gather them again for backward.
        param_dtype: gather and compute in this dtype; the shards, and the optimizer, keep the weights' own.
        reduce_dtype: exchange gradients in this dtype.
        checkpoint: ``"full"`` for one file, ``"sharded"`` for a folder to which each rank writes its part.
        start_timeout, timeout: seconds, see :class:`ProcessPerDeviceStrategy`.
    """

    def __init__(
        self,
        wrap: str | Sequence[str] = (),
        min_params: int = 0,
        reshard_after_forward: bool = True,
        param_dtype: str | None = None,
        reduce_dtype: str | None = None,
        checkpoint: Literal["full", "sharded"] = "full",
        start_timeout: float = 120.0,
        timeout: float = 600.0,
    ) -> None:
        super().__init__(start_timeout, timeout)
        self.wrap = (wrap,) if isinstance(wrap, str) else tuple(wrap)
        self.min_params, self.reshard_after_forward = min_params, reshard_after_forward
        self.param_dtype, self.reduce_dtype = param_dtype, reduce_dtype
        self.checkpoint = checkpoint
        self._policy = MixedPrecisionPolicy(
            param_dtype=_dtype("param_dtype", param_dtype), reduce_dtype=_dtype("reduce_dtype", reduce_dtype)
        )
        if checkpoint not in ("full", "sharded"):
            raise InvalidArgument(f"checkpoint={checkpoint!r} must be 'full' or 'sharded'")
        self._original: Original | None = None
        self._buffers: Buffers | None = None

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        _refuse_sharded(module)
        module.to(self.device)
        module = self.with_sync_batchnorm(module)
        for parameter in module.parameters():
            dist.broadcast(parameter.detach(), src=0)
        self._buffers = Buffers(module)
        self._original = Original(module)
        (users_module,) = module.children()
        mesh = init_device_mesh(self.device.type, (self.ranks.world_size,))
        for part in parts_to_gather(users_module, self.wrap, self.min_params):
            fully_shard(part, mesh=mesh, mp_policy=self._policy, reshard_after_forward=self.reshard_after_forward)
        # backward follows at once and needs the outermost parameters first: to free them costs a second gathering
        fully_shard(module, mesh=mesh, mp_policy=self._policy, reshard_after_forward=False)
        module.register_forward_hook(_free_without_backward)
        return WrappedModel(module, make_optimizers(), module, evaluation_exchanges=True)

    @hookimpl
    @contextmanager
    def skip_gradient_sync(self, module: nn.Module) -> Iterator[None]:
        assert isinstance(module, FSDPModule), "what wrap_model returned"
        module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            module.set_requires_gradient_sync(True)

    @hookimpl
    def gather_state(self, module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
        self._agree_on_buffers()
        if self.checkpoint == "sharded":
            return states.sharded_state(module, optimizers)
        keep = self.ranks.global_rank == 0
        whole = states.whole_state(module, optimizers, keep)
        return whole if keep else None

    @hookimpl
    def restore_state(self, module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
        states.load_state(module, optimizers, state)

    def _agree_on_buffers(self) -> None:
        if self._buffers is not None:
            self._buffers.agree()

    @hookimpl
    def conclude(self, outcome: T) -> T:
        self._agree_on_buffers()
        if self._original is not None:
            self._original.restore()
        self._original = None
        return outcome


def _free_without_backward(module: nn.Module, *_: Any) -> None:
    """Free what was gathered for a forward that no backward follows: who looks at weights then finds the shards."""
    if not torch.is_grad_enabled():
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()


def _dtype(name: str, value: str | None) -> torch.dtype | None:
    dtype = None if value is None else getattr(torch, value, None)
    if value is not None and not isinstance(dtype, torch.dtype):
        raise InvalidArgument(f"{name}={value!r} is not the name of a dtype, such as 'bfloat16'")
    return dtype


def _refuse_sharded(module: nn.Module) -> None:
    if is_sharded(module):
        raise InterlockError(
            "the module is sharded already, by a run that failed or by its author; build it anew for this run"
        )

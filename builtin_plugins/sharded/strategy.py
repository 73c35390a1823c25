"""fairscale's OSS and ShardedDataParallel as a strategy."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # fairscale is no longer changed; torch's advice to its authors helps no user
    from fairscale.nn.data_parallel import ShardedDataParallel
    from fairscale.optim import OSS

from torch import nn
from torch.optim import Optimizer

from core.parallel.process_per_device import ProcessPerDeviceStrategy
from core.plugins import WrappedModel, hookimpl


class ShardedStrategy(ProcessPerDeviceStrategy):
    """Every rank holds the whole model, but optimizer state and reduced gradients of its own part only.

    Args:
        broadcast_fp16: send updated parameters between ranks in float16.
        start_timeout, timeout: seconds, see :class:`ProcessPerDeviceStrategy`.
    """

    def __init__(self, broadcast_fp16: bool = False, start_timeout: float = 120.0, timeout: float = 600.0) -> None:
        super().__init__(start_timeout, timeout)
        self.broadcast_fp16 = broadcast_fp16

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        module.to(self.device)
        module = self.with_sync_batchnorm(module)
        optimizers: list[Optimizer] = [self._shard(optimizer) for optimizer in make_optimizers()]
        if not optimizers:
            return WrappedModel(module, [])
        # fairscale's gradient buckets break when gradients are set to None between steps; torch does that since 2.0
        wrapped = ShardedDataParallel(module, optimizers, reduce_buffer_size=0, warn_on_trainable_params_changed=False)
        return WrappedModel(wrapped, optimizers)

    def _shard(self, optimizer: Optimizer) -> OSS:
        """Rebuild ``optimizer`` with its state sharded: same class, parameter groups and settings."""
        kind = type(optimizer)
        accepted = inspect.signature(kind).parameters
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values())
        # some optimizers keep defaults that their constructor does not take
        defaults = {key: value for key, value in optimizer.defaults.items() if takes_any or key in accepted}
        return OSS(optimizer.param_groups, optim=kind, broadcast_fp16=self.broadcast_fp16, **defaults)

    @hookimpl
    def skip_gradient_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        return module.no_sync()  # type: ignore[operator, no-any-return]  # what wrap_model returned

    @hookimpl
    def clip_gradients(
        self, module: nn.Module, optimizer: Optimizer, value: float, algorithm: Literal["norm", "value"]
    ) -> None:
        if algorithm == "norm":
            optimizer.clip_grad_norm(value)  # type: ignore[attr-defined]  # OSS: over the parts of all ranks
        else:
            super().clip_gradients(module, optimizer, value, algorithm)

    @hookimpl
    def gather_state(self, module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
        for optimizer in optimizers:
            optimizer.consolidate_state_dict(recipient_rank=0)  # type: ignore[attr-defined]  # OSS; every rank
        try:
            return super().gather_state(module, optimizers)
        finally:
            for optimizer in optimizers:
                optimizer._all_states = []  # type: ignore[attr-defined]  # the whole state need not stay in memory

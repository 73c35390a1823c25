"""torch's ZeroRedundancyOptimizer around any optimizer, under DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from builtin_plugins.ddp.strategy import DDPStrategy
from core.optim.rebuild import constructor_settings
from core.plugins import WrappedModel, hookimpl


class ZeroStrategy(DDPStrategy):
    """Every rank holds the whole model and all gradients, but optimizer state of its own part only.

    After its step each rank sends the parameters of its part to the others. Options are those of
    :class:`~builtin_plugins.ddp.strategy.DDPStrategy`.
    """

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        return super().wrap_model(module, lambda: [_shard(optimizer) for optimizer in make_optimizers()])

    @hookimpl
    def gather_state(self, module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
        sharded = [optimizer for optimizer in optimizers if isinstance(optimizer, ZeroRedundancyOptimizer)]
        for optimizer in sharded:
            optimizer.consolidate_state_dict(to=0)
        try:
            return super().gather_state(module, optimizers)
        finally:
            for optimizer in sharded:
                optimizer._all_state_dicts = []  # type: ignore[attr-defined]  # the whole state need not stay in memory

    @hookimpl
    def restore_state(self, module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
        # torch's class takes the parts of other ranks out of the state that it is given: hand it a copy
        saved = [{**one, "state": dict(one["state"])} for one in state.get("optimizer_states", ())]
        super().restore_state(module, optimizers, {**state, "optimizer_states": saved})


def _shard(optimizer: Optimizer) -> ZeroRedundancyOptimizer:
    """Rebuild ``optimizer`` with its state sharded: same class, parameter groups and settings."""
    kind = type(optimizer)
    return ZeroRedundancyOptimizer(optimizer.param_groups, kind, **constructor_settings(optimizer))

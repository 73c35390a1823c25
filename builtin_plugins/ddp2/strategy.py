"""Replicas inside a process, DistributedDataParallel around it."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.optim import Optimizer

from builtin_plugins.ddp.strategy import DDPStrategy
from core.parallel.replicas import ReplicaStrategy
from core.plugins import WrappedModel, hookimpl


class DDP2Strategy(DDPStrategy, ReplicaStrategy):
    """One rank per node, which reads the node's share of the data and cuts each batch into one chunk per device.

    The replicas' gradients are summed inside the process before DistributedDataParallel sees them, so that nodes
    exchange each gradient once. Options are those of :class:`~builtin_plugins.ddp.strategy.DDPStrategy`.
    """

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        step = self.replicated(module)
        between_nodes = DDPStrategy.wrap_model(self, step, make_optimizers)
        return between_nodes._replace(evaluation=step)

    @hookimpl
    def teardown(self) -> None:
        ReplicaStrategy.teardown(self)
        super().teardown()

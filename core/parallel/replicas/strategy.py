"""The base class of strategies in which one process drives several devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from core.data.chunks import Chunk, cut_batch, join_outputs
from core.hookspecs import WrappedModel, hookimpl
from core.parallel.replicas.step import ReplicatedStep
from core.plan import Plan
from core.plugins import Strategy


class ReplicaStrategy(Strategy):
    """Base of strategies with one process and several devices (SPMD).

    Each step's batch is cut into one chunk per device; replicas of the module run the step on their chunks side by
    side, and loss, outputs and logged values are brought together, weighted by chunk size. The loss has to be a mean
    over the batch. All parameters and optimizers are those of the one module. Its declaration needs a provider of
    ``replicas``.

    A replica is a shallow copy: attributes and buffers that a step assigns are forgotten, those that it changes in
    place count on the first replica only.
    """

    _step: ReplicatedStep | None = None

    def split_batch(self, batch: Any, parts: int) -> list[Chunk]:
        """Cut a batch into at most ``parts`` chunks; override it for batches that are not made of tensors."""
        return cut_batch(batch, parts)

    def join_outputs(self, outputs: list[Any], sizes: list[int]) -> Any:
        """Return one value for what the replicas' steps returned."""
        return join_outputs(outputs, sizes)

    def replicated(self, module: nn.Module) -> ReplicatedStep:
        """Return a module that runs ``module`` in replicas; it lives until :meth:`teardown`."""
        devices = replica_devices(self.plan, self.device)
        self._step = ReplicatedStep(module, devices, self.split_batch, self.join_outputs)
        return self._step

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        module.to(self.device)
        step = self.replicated(module)
        return WrappedModel(step, make_optimizers(), step)

    @hookimpl
    def teardown(self) -> None:
        if self._step is not None:
            self._step.close()
        self._step = None


def replica_devices(plan: Plan, device: torch.device) -> list[torch.device]:
    """Return the devices that one process drives, ``device`` being the first; in host memory all are the same."""
    if device.index is None:
        return [device] * plan.num_devices
    indices = plan.devices if plan.devices is not None else range(plan.num_devices)
    return [torch.device(device.type, index) for index in indices]

"""torch's post-local-SGD hook and optimizer as a strategy."""

from __future__ import annotations

import atexit
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from core.errors import InvalidArgument
from core.parallel.process_per_device import ProcessPerDeviceStrategy
from core.plugins import WrappedModel, hookimpl

T = TypeVar("T")

# torch 2.13 renamed it
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)


class LocalSGD(ProcessPerDeviceStrategy):
    """Every rank steps on its own gradients; every ``sync_every`` steps the ranks take the mean of their weights.

    A checkpoint is a meeting too: before it is gathered, the ranks average weights, buffers and optimizer state,
    so that the one file holds what every rank goes on with. So is the end of the run, for weights and buffers.

    Args:
        sync_every: steps between two averages; the first average comes after the first step.
        warmup_steps: first steps in which gradients are averaged over all ranks, as ddp does.
        group_size: neighbouring ranks (the devices of one node, say) that still average gradients in every step.
        start_timeout, timeout: seconds, see :class:`ProcessPerDeviceStrategy`.

    Raises:
        InvalidArgument: for an option below its least value.
    """

    def __init__(
        self,
        sync_every: int = 8,
        warmup_steps: int = 0,
        group_size: int = 1,
        start_timeout: float = 120.0,
        timeout: float = 600.0,
    ) -> None:
        super().__init__(start_timeout, timeout)
        for name, value, least in (("sync_every", sync_every, 1), ("warmup_steps", warmup_steps, 0)):
            _whole(name, value, least)
        _whole("group_size", group_size, 1)
        self.sync_every, self.warmup_steps, self.group_size = sync_every, warmup_steps, group_size
        self._wrapped: DistributedDataParallel | None = None
        self._averagers: list[PeriodicModelAverager] = []
        self._gradients: PostLocalSGDState | None = None

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        module.to(self.device)
        optimizers = make_optimizers()
        if not optimizers:  # nothing is trained
            return WrappedModel(module, [])
        wrapped = self._wrapped = DistributedDataParallel(
            module,
            device_ids=None if self.device.index is None else [self.device.index],
            **{_SYNC_BUFFERS: False},  # each rank keeps its own between two meetings, like its weights
        )
        self._gradients = PostLocalSGDState(
            process_group=None,
            subgroup=self._neighbours(),
            start_localSGD_iter=self.warmup_steps,
            post_local_gradient_allreduce=self.group_size > 1,
        )
        wrapped.register_comm_hook(self._gradients, post_localSGD_hook)
        atexit.register(self._let_go)
        self._averagers = [self._averager() for _ in optimizers]
        pairs = zip(optimizers, self._averagers, strict=True)
        return WrappedModel(wrapped, [PostLocalSGDOptimizer(optimizer, averager) for optimizer, averager in pairs])

    def _neighbours(self) -> dist.ProcessGroup | None:
        if self.group_size == 1:
            return None
        if self.plan.world_size % self.group_size:
            raise InvalidArgument(f"group_size={self.group_size} does not divide {self.plan.world_size} ranks")
        own, _ = dist.new_subgroups(self.group_size)
        return own

    def _averager(self) -> PeriodicModelAverager:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch advises against a period of 1, which is of use in comparisons
            return PeriodicModelAverager(self.sync_every, self.warmup_steps)

    @hookimpl
    def skip_gradient_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        return module.no_sync()

    @hookimpl
    def gather_state(self, module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
        inner = _inner(optimizers)
        self._meet([*module.parameters(), *module.buffers(), *_state_tensors(inner)])
        return super().gather_state(module, inner)

    @torch.no_grad()
    def _meet(self, tensors: Sequence[Tensor]) -> None:
        """Replace each floating-point tensor by its mean over the ranks; integers count steps and are equal already."""
        for tensor in tensors:
            if tensor.is_floating_point() and tensor.device.type == self.device.type:
                tensor.copy_(self.hooks.reduce(tensor.detach(), "mean"))

    @hookimpl
    def restore_state(self, module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
        super().restore_state(module, _inner(optimizers), state)
        for optimizer in optimizers:  # loading gives the inner one new groups, and schedulers change those they see
            optimizer.param_groups = optimizer.optim.param_groups

    @hookimpl
    def conclude(self, outcome: T) -> T:
        """Leave the mean of all ranks' weights in the user's module when the run is over."""
        if self._wrapped is not None:
            self._meet([*self._wrapped.parameters(), *self._wrapped.buffers()])
        return super().conclude(outcome)

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
        return {
            "averager_steps": [averager.step for averager in self._averagers],
            "gradient_steps": self._gradients.iter if self._gradients is not None else 0,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for averager, step in zip(self._averagers, state["averager_steps"], strict=True):
            averager.step = step
        if self._gradients is not None:
            self._gradients.iter = state["gradient_steps"]


def _whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidArgument(f"{name} must be a whole number of at least {least}, not {value!r}")


def _inner(optimizers: Sequence[Optimizer]) -> list[Optimizer]:
    """Return the user's own optimizers, whose state is torch's plain layout."""
    return [optimizer.optim for optimizer in optimizers]


def _state_tensors(optimizers: Sequence[Optimizer]) -> Iterator[Tensor]:
    """Yield the tensors of the optimizers' state in the same order on every rank."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                values = optimizer.state.get(parameter, {})
                yield from (values[key] for key in sorted(values) if isinstance(values[key], Tensor))

"""The layer "single process, single device": one process for each device, tensors exchanged over a group."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Any, ClassVar, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from core.environments import detect_environment
from core.errors import InvalidArgument
from core.hookspecs import ReduceOp, Shard, hookimpl
from core.parallel import group
from core.parallel.children import children_for, has_children
from core.parallel.guard import guarded, guarded_child
from core.parallel.rendezvous import Rendezvous, current, has_current, set_current, using
from core.parallel.spawn import run_spawned
from core.parallel.stores import join_external, join_store
from core.plugins import Strategy
from core.session import LaunchEnvironment, Ranks

T = TypeVar("T")

COLLECTIVE = "collective."


class ProcessPerDeviceStrategy(Strategy):
    """Base of strategies with one process per device (SPSD). A subclass wraps the model.

    It starts or joins the processes as the plan says, forms the process group over the first backend that both
    the accelerator and :attr:`backends` name, and gives ``reduce``, ``broadcast``, ``barrier`` and
    ``shard_data`` their meaning. Its declaration needs ``wraps=("setup_device",)``.

    Args:
        start_timeout: seconds within which all ranks must have started.
        timeout: seconds that a rank waits for the others in any exchange.
    """

    backends: ClassVar[tuple[str, ...]] = ("nccl", "gloo")

    def __init__(self, start_timeout: float = 120.0, timeout: float = 600.0) -> None:
        self.start_timeout, self.timeout = start_timeout, timeout
        self._group: Any = None

    @property
    def backend(self) -> str:
        """The process group's backend: the accelerator's first that this strategy can use."""
        offered = [
            token.removeprefix(COLLECTIVE)
            for token in self.plan.accelerator.declaration.provides
            if token.startswith(COLLECTIVE)
        ]
        return next(name for name in offered if name in self.backends)

    @hookimpl
    def launch(self, run: Callable[[Ranks], T]) -> T:
        how, world_size = self.plan.launch.how, self.plan.world_size
        environment = detect_environment()
        if how == "external" and environment.ranks is not None:
            return guarded(run, _join_once(environment, lambda ranks: join_external(environment, self.start_timeout)))
        if world_size == 1:
            return self._run_alone(run)
        self._refuse_mixed(environment)
        if environment.name == "interlock":
            return guarded_child(run, _join_once(environment, self._join_parent))
        if how in ("spawn", "fork"):
            return run_spawned(run, world_size, self.start_timeout, how)
        return children_for(world_size, self.start_timeout).run(run)

    def _run_alone(self, run: Callable[[Ranks], T]) -> T:
        with using(Rendezvous(dist.HashStore(), Ranks())):
            return run(Ranks())

    def _refuse_mixed(self, environment: LaunchEnvironment) -> None:
        """Refuse to start processes where that could only go wrong.

        Raises:
            InvalidArgument: in a program that runs as several processes already, unless they run it again.
        """
        name = self.plan.strategy.name
        if not self.plan.provides("launch.subprocess") and (has_children() or environment.name == "interlock"):
            raise InvalidArgument(
                f"strategy {name!r} starts new processes, but this program runs as several since an earlier run\n"
                "  hint: take the same strategy for all runs of a program"
            )
        if environment.name == "interlock" or has_children():
            return
        group.give_back_earlier()
        if dist.is_initialized():
            raise InvalidArgument(
                f"strategy {name!r} would start {self.plan.world_size} processes, but this one is in a process group "
                f"of {dist.get_world_size()} already\n"
                "  hint: start the program with torchrun, or leave it to the strategy to form the group"
            )

    def _join_parent(self, ranks: Ranks) -> Rendezvous:
        store = join_store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), self.start_timeout)
        return Rendezvous(store, ranks)

    def with_sync_batchnorm(self, module: nn.Module) -> nn.Module:
        """Return ``module``, its batch-norm layers replaced by synchronised ones if the request asks for it."""
        asked = any("sync_batchnorm" in need.alternatives for need in self.plan.request.needs)
        return nn.SyncBatchNorm.convert_sync_batchnorm(module) if asked else module  # type: ignore[no-untyped-call]

    @hookimpl(wrapper=True)
    def setup_device(self, ranks: Ranks) -> Generator[None, torch.device, torch.device]:
        device = yield
        self._rendezvous = current()
        # two runs that the ranks take for one would mix their data: the name is part of what they agree on
        point = f"start of a run with {self.plan.strategy.name}"
        # the first time ranks have to start; later they come from whatever the program did between its runs
        self._rendezvous.meet(point, self.start_timeout if self._rendezvous.runs == 1 else self.timeout)
        self._group = group.form(self.backend, self._rendezvous, device, self.timeout)
        return device

    @hookimpl
    def shard_data(self) -> Shard:
        return Shard(self.ranks.global_rank, self.ranks.world_size)

    @hookimpl
    def reduce(self, tensor: Tensor, op: ReduceOp) -> Tensor:
        return group.reduce(tensor, op)

    @hookimpl
    def broadcast(self, value: Any) -> Any:
        return group.broadcast(value, self.device)

    @hookimpl
    def barrier(self, name: str, timeout: float | None) -> None:
        self._rendezvous.meet(name, self.timeout if timeout is None else timeout)

    @hookimpl
    def teardown(self) -> None:
        group.give_back(self._group)
        self._group = None


def _join_once(environment: LaunchEnvironment, join: Callable[[Ranks], Rendezvous]) -> Rendezvous:
    ranks = environment.ranks
    assert ranks is not None, "asked only where a launcher gave ranks"
    return current() if has_current() else set_current(join(ranks))

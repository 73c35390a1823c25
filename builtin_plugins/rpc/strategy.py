"""A world of named workers as a strategy."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from builtin_plugins.pipeline.averaging import (
    average_gradients,
    clip_by_value,
    clip_factor,
    gradients_of,
    same_everywhere,
    square_sum,
)
from builtin_plugins.pipeline.state import load_own, own_state, whole_state
from builtin_plugins.rpc import world
from builtin_plugins.rpc.handles import ask_all
from builtin_plugins.rpc.mains import Mains, MainsMeeting
from builtin_plugins.rpc.optimizers import Location, RemoteShares
from builtin_plugins.rpc.parts import adopt_remote_modules, remote_parts
from builtin_plugins.rpc.service import service
from builtin_plugins.rpc.step import DistributedStep
from core.arguments import whole
from core.errors import InterlockError, InvalidArgument, RankFailed, WaitTimeout
from core.hookspecs import ReduceOp
from core.parallel import group
from core.parallel.process_per_device import ProcessPerDeviceStrategy
from core.plugins import Shard, WrappedModel, hookimpl
from core.session import Ranks

T = TypeVar("T")

THREADS = 32
"""Requests that a rank answers at the same time."""


class RPCStrategy(ProcessPerDeviceStrategy):
    """Main ranks run the loop; the others serve: they hold what the module's remote parts stand for.

    Args:
        main_ranks: how many ranks run the loop, each on its part of the data.
        names: of the workers, by rank.
        start_timeout, timeout: seconds, see :class:`ProcessPerDeviceStrategy`.

    Raises:
        InvalidArgument: for numbers and names that cannot be.
    """

    def __init__(
        self,
        main_ranks: int = 1,
        names: Sequence[str] | None = None,
        start_timeout: float = 120.0,
        timeout: float = 600.0,
    ) -> None:
        super().__init__(start_timeout, timeout)
        self.main_ranks = whole("main_ranks", main_ranks, least=1)
        self.names = None if names is None else world.check_names(names, len(names))
        self._sync = True
        self._working = False
        self._step: DistributedStep | None = None
        self._shares: dict[int, RemoteShares] = {}
        self._scales: dict[int, tuple[float, float | None]] = {}
        self._stand_ins: dict[int, Location] = {}

    # ------------------------------------------------------------------ processes

    @property
    def num_mains(self) -> int:
        """How many ranks run the loop; they are the first."""
        return self.main_ranks

    @property
    def threads(self) -> int:
        """How many requests a rank answers at the same time."""
        return THREADS

    def check(self, module: nn.Module) -> None:
        """Refuse what cannot work, before any process starts."""
        if self.num_mains > self.plan.world_size:
            raise InvalidArgument(f"main_ranks={self.num_mains}, but there are {self.plan.world_size} devices")

    def worker_names(self) -> tuple[str, ...]:
        """Return the names of all ranks."""
        size = self.plan.world_size
        return world.default_names(size) if self.names is None else world.check_names(self.names, size)

    def alike(self) -> list[list[int]]:
        """Return the sets of ranks whose parts are copies of each other."""
        return []

    @hookimpl
    def launch(self, run: Callable[[Ranks], T]) -> T:
        self.check(run.module)  # type: ignore[attr-defined]  # see the hook
        self.worker_names()
        return super().launch(partial(self._run, run))

    def _run(self, run: Callable[[Ranks], T], ranks: Ranks) -> T:
        return run(ranks._replace(world_size=self.num_mains))

    @hookimpl(wrapper=True)
    def setup_device(self, ranks: Ranks) -> Generator[None, torch.device, torch.device]:
        self._working = True
        device = yield from super().setup_device(ranks)
        meeting, timeout = self._rendezvous, timedelta(seconds=self.timeout)
        mains = dist.new_group(list(range(self.num_mains)), timeout=timeout)
        alike = None
        for members in self.alike():
            made = dist.new_group(members, timeout=timeout)
            alike = made if ranks.global_rank in members else alike
        service().begin(self.hooks, device, self.timeout, alike)
        here = world.enter(meeting, self.worker_names(), self.num_mains, self.threads, self.timeout)
        self.mains = Mains(mains, self.num_mains, device)
        self._meeting = MainsMeeting(meeting, here.next_run(), ranks)
        meeting.meet("the RPC world is ready", self.start_timeout)
        return device

    @hookimpl
    def conclude(self, outcome: T) -> T:
        if self.ranks.serves:
            service().ready()
        else:
            self.bring_home()
        self._meet_at_end()
        told: T = group.broadcast(outcome, self.device)
        service().end()
        self._working = False
        return told if self.ranks.serves else outcome

    def _meet_at_end(self) -> None:
        """Wait for the end of the run; a rank that serves does so for as long as the others work."""
        try:
            self._rendezvous.meet("end of the run", float("inf") if self.ranks.serves else self.timeout)
        except (RankFailed, WaitTimeout):
            own, first = service().error, self._rendezvous.first_failure()
            if own is not None and first is not None and first.rank == self.ranks.global_rank:
                raise own from None  # it was a request here that failed: its traceback is the one to see
            raise

    @hookimpl
    def teardown(self) -> None:
        if self._step is not None:
            self._step.close()
        if self._working:
            service().end()
            world.abandon()
        self._working = False
        super().teardown()

    # ------------------------------------------------------------------ the ranks that run the loop

    @hookimpl
    def shard_data(self) -> Shard:
        return Shard(self.ranks.global_rank, self.num_mains)

    @hookimpl
    def reduce(self, tensor: Tensor, op: ReduceOp) -> Tensor:
        return tensor if self.ranks.serves else self.mains.reduce(tensor, op)

    @hookimpl
    def broadcast(self, value: Any) -> Any:
        return value if self.ranks.serves else self.mains.broadcast(value)

    @hookimpl
    def barrier(self, name: str, timeout: float | None) -> None:
        if not self.ranks.serves:
            self._meeting.meet(name, self.timeout if timeout is None else timeout)

    # ------------------------------------------------------------------ the model

    def place(self, user: nn.Module) -> None:
        """Put the parts of the model where they belong, and fill :attr:`_stand_ins`."""
        adopt_remote_modules(user, self.num_mains)
        for part in remote_parts(user):
            for name, stand_in in part.state_dict_here().items():
                self._stand_ins[id(stand_in)] = Location(part.handle.worker, part.handle.name, name)
        user.to(self.device)

    def bring_home(self) -> None:
        """Put back into the user's module what :meth:`place` took out of it."""

    @property
    def drives_shares(self) -> bool:
        """Whether this rank steps the optimizers of other ranks: where several share a part, one does."""
        return self.ranks.global_rank == 0

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        service().ready()
        user = next(module.children())
        self._stand_ins.clear()
        self.place(user)
        tensors = [*user.parameters(), *user.buffers()]
        here = [tensor for tensor in tensors if id(tensor) not in self._stand_ins]
        if self.num_mains > 1:
            same_everywhere(here, self.mains.group, self.device)
        self._learning = [tensor for tensor in here if isinstance(tensor, nn.Parameter) and tensor.requires_grad]
        optimizers = make_optimizers()
        self._shares = {}
        if self.drives_shares:
            for number, optimizer in enumerate(optimizers):
                key = f"main{self.ranks.global_rank}/optimizer{number}"
                self._shares[id(optimizer)] = RemoteShares(optimizer, key, self._stand_ins, self.timeout)
        self._step = step = DistributedStep(module, self.timeout)
        return WrappedModel(step, optimizers, module)

    @hookimpl
    def skip_gradient_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        return self._without_sync()

    @contextmanager
    def _without_sync(self) -> Iterator[None]:
        self._sync = False
        try:
            yield
        finally:
            self._sync = True

    @hookimpl
    def backward(self, loss: Tensor) -> None:
        if self.own_backward is not None:
            raise InterlockError("the module has a backward of its own, which cannot reach other ranks; leave it out")
        assert self._step is not None, "the model is wrapped before its first backward"
        self._step.backward(loss, self.remote_scale)
        if self._sync:
            self.exchange_gradients()

    @property
    def remote_scale(self) -> float:
        """What the gradients of other ranks are multiplied by: a part that mains share gets the mean of theirs."""
        return 1.0 / self.num_mains

    def exchange_gradients(self) -> None:
        """Average the gradients of what each main rank has, and wait until all have sent theirs."""
        if self.num_mains > 1:
            average_gradients(self._learning, self.mains.group, self.device)
            self.mains.wait()

    # ------------------------------------------------------------------ the end of a window

    @hookimpl
    def clip_gradients(
        self, module: nn.Module, optimizer: Optimizer, value: float, algorithm: Literal["norm", "value"]
    ) -> None:
        gradients = gradients_of(optimizer)
        if algorithm == "value":
            self._scales[id(optimizer)] = (1.0, value)
            clip_by_value(gradients, value)
            return
        factor = clip_factor(square_sum(gradients) + self.remote_square_sum(optimizer), value)
        self._scales[id(optimizer)] = (factor, None)
        for gradient in gradients:
            gradient.mul_(factor)

    def remote_square_sum(self, optimizer: Optimizer) -> float:
        """Return the sum of the squares of the gradients on other ranks, on every main rank."""
        own = self._shares[id(optimizer)].square_sum() if self.drives_shares else 0.0
        return float(self.broadcast(own))

    @hookimpl
    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Tensor] | None) -> None:
        scale, limit = self._scales.pop(id(optimizer), (1.0, None))
        if self.drives_shares:
            self._shares[id(optimizer)].step(scale, limit)
        super().optimizer_step(optimizer, closure)
        if self.num_mains > 1:
            self.mains.wait()  # nobody runs forward on parts that are being updated

    # ------------------------------------------------------------------ state

    @hookimpl
    def gather_state(self, module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
        if self.ranks.global_rank != 0:
            return None
        states = []
        for optimizer in optimizers:
            own = own_state(optimizer, self._stand_ins)
            states.append(whole_state(optimizer, [own, *self._shares[id(optimizer)].state()]))
        return {"state_dict": module.state_dict(), "optimizer_states": states}

    @hookimpl
    def restore_state(self, module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
        module.load_state_dict(state["state_dict"])
        for optimizer, saved in zip(optimizers, state.get("optimizer_states", ()), strict=False):
            load_own(optimizer, saved, self._stand_ins)
            if self.drives_shares:
                self._shares[id(optimizer)].load(saved)
        self.mains.wait()

    def state_dict(self) -> dict[str, Any]:
        """Return the random states of the ranks that serve; those of the others are in the loops' state."""
        if self.ranks.global_rank != 0:
            return {}
        return {"random_states": ask_all([(name, ("random_state",)) for name in self._serving], self.timeout)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        states = state.get("random_states", [])
        if self.ranks.global_rank == 0 and len(states) == len(self._serving):
            requests = [(name, ("set_random_state", one)) for name, one in zip(self._serving, states, strict=True)]
            ask_all(requests, self.timeout)
        self.mains.wait()

    @property
    def _serving(self) -> tuple[str, ...]:
        return self.worker_names()[self.num_mains :]

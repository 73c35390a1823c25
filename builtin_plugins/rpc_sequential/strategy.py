"""Stages on RPC workers as a strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn
from torch.optim import Optimizer

from builtin_plugins.pipeline.averaging import average_gradients, same_everywhere
from builtin_plugins.pipeline.layers import StandIns, cut, find_sequential, layer_tensors, move_rest, replace_forward
from builtin_plugins.pipeline.settings import Cutting
from builtin_plugins.pipeline.state import load_module, load_own
from builtin_plugins.rpc.handles import Handle, ask_all
from builtin_plugins.rpc.optimizers import Location
from builtin_plugins.rpc.strategy import THREADS, RPCStrategy
from builtin_plugins.rpc_sequential.pipe import Pipe, RemoteStage
from core.plugins import hookimpl


class RPCSequentialStrategy(RPCStrategy):
    """The module's sequential is cut into stages; its first stage stays on a main rank, the others go to workers.

    The loop runs on the main rank of each pipeline: ranks 0, 1, ... for as many pipelines as there are. The workers
    follow, pipeline by pipeline.

    Args:
        stages: of one pipeline; ``devices`` may be a multiple, which makes pipelines side by side.
        balance: layers of each stage, or ``"parameters"`` or ``"time"`` to have it inferred.
        micro_batches: parts of a batch in flight at the same time.
        names: of the workers, by rank.
        start_timeout, timeout: seconds, see :class:`~core.parallel.process_per_device.ProcessPerDeviceStrategy`.

    Raises:
        InvalidArgument: for a balance that cannot be.
    """

    def __init__(
        self,
        stages: int | None = None,
        balance: str | Sequence[int] = "parameters",
        micro_batches: int = 8,
        names: Sequence[str] | None = None,
        start_timeout: float = 120.0,
        timeout: float = 600.0,
    ) -> None:
        super().__init__(1, names, start_timeout, timeout)
        self.cutting = Cutting(stages, balance, micro_batches)
        self.stages, self.balance, self.micro_batches = stages, self.cutting.balance, micro_batches
        self._remote: list[RemoteStage] = []
        self._homes: list[StandIns] = []
        self._undo: list[Callable[[], None]] = []
        self._elsewhere: dict[str, tuple[Handle, str]] = {}

    # ------------------------------------------------------------------ processes

    @property
    def num_stages(self) -> int:
        """Stages of one pipeline."""
        return self.cutting.stages(self.plan.world_size)

    @property
    def num_mains(self) -> int:
        return self.plan.world_size // self.num_stages

    @property
    def threads(self) -> int:
        return max(THREADS, self.micro_batches + 8)

    def check(self, module: nn.Module) -> None:
        self.cutting.check(module, self.plan.world_size)

    def rank_of(self, pipeline: int, stage: int) -> int:
        """Return the rank that has ``stage`` of ``pipeline``."""
        return self.num_mains + pipeline * (self.num_stages - 1) + stage - 1 if stage else pipeline

    def alike(self) -> list[list[int]]:
        if self.num_mains == 1:
            return []
        return [[self.rank_of(p, s) for p in range(self.num_mains)] for s in range(1, self.num_stages)]

    # ------------------------------------------------------------------ the model

    def place(self, user: nn.Module) -> None:
        sequential, _ = find_sequential(user)
        found = self.cutting.find_balance(user, self.num_stages, self.device) if self.drives_balance else None
        parts = cut(sequential, self.broadcast(found))
        names: dict[int, list[str]] = {}
        for name, tensor in layer_tensors(user).items():
            names.setdefault(id(tensor), []).append(name)
        if self.num_mains > 1:
            same_everywhere(layer_tensors(user).values(), self.mains.group, self.device)
        move_rest(user, sequential, self.device)
        first = parts[0].to(self.device)
        self._remote, self._homes = [], []
        self._elsewhere.clear()
        for stage, part in enumerate(parts[1:], start=1):
            self._send_away(stage, part, names)
        if self._remote:
            pipe = Pipe(first, self._remote, self.micro_batches)
            fetch = partial(_fetch, self._remote)  # torch marks its hooks, which a method does not allow
            hook = sequential.register_state_dict_post_hook(fetch)  # type: ignore[no-untyped-call]
            self._undo = [replace_forward(sequential, pipe), hook.remove]

    @property
    def drives_balance(self) -> bool:
        """Whether this rank infers the balance: times differ from rank to rank, and the cut must not."""
        return self.ranks.global_rank == 0

    def _send_away(self, stage: int, part: nn.Sequential, names: dict[int, list[str]]) -> None:
        rank = self.rank_of(self.ranks.global_rank, stage)
        handle = Handle(self.worker_names()[rank], f"stage{stage}", self.timeout)
        handle.ask("install", part.cpu())
        home = StandIns(part, f"rank {rank} ({handle.worker})")
        for name, stand_in in home.tensors.items():
            self._stand_ins[id(stand_in)] = Location(handle.worker, handle.name, name)
            self._elsewhere.update(dict.fromkeys(names[id(stand_in)], (handle, name)))
        self._remote.append(RemoteStage(handle, part))
        self._homes.append(home)

    def bring_home(self) -> None:
        for (handle, _), home in zip(self._remote, self._homes, strict=True):
            home.fill(handle.ask("state"))
        for undo in self._undo:
            undo()
        self._homes, self._undo, self._remote = [], [], []

    # ------------------------------------------------------------------ gradients

    @property
    def drives_shares(self) -> bool:
        """Each main rank steps the workers of its own pipeline."""
        return True

    @property
    def remote_scale(self) -> float:
        return 1.0

    def remote_square_sum(self, optimizer: Optimizer) -> float:
        return self._shares[id(optimizer)].square_sum()

    def exchange_gradients(self) -> None:
        """Average the gradients of each stage over the pipelines."""
        if self.num_mains > 1:
            ask_all([(handle.worker, ("average", handle.name)) for handle, _ in self._remote], self.timeout)
            average_gradients(self._learning, self.mains.group, self.device)

    # ------------------------------------------------------------------ state

    @hookimpl
    def restore_state(self, module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
        saved = state["state_dict"]
        load_module(module, saved, set(self._elsewhere))
        pieces: dict[Handle, dict[str, Any]] = {}
        for name, (handle, own) in self._elsewhere.items():
            pieces.setdefault(handle, {})[own] = saved[name]
        for handle, piece in pieces.items():
            handle.ask("load", piece)
        for optimizer, one in zip(optimizers, state.get("optimizer_states", ()), strict=False):
            load_own(optimizer, one, self._stand_ins)
            self._shares[id(optimizer)].load(one)
        self.mains.wait()


def _fetch(remote: Sequence[RemoteStage], _: nn.Module, state: dict[str, Any], prefix: str, __: Any) -> None:
    """Put the weights of the workers into the state of the sequential."""
    for handle, _likeness in remote:
        for name, value in handle.ask("state").items():
            state[prefix + name] = value

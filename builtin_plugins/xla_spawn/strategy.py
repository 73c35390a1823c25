"""Data parallel over processes that torch_xla starts, one for each device."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
import torch_xla
from torch import Tensor, nn
from torch.optim import Optimizer
from torch_xla import runtime
from torch_xla.core import xla_model

from core.hookspecs import ReduceOp, Shard, WrappedModel
from core.plugins import Strategy, hookimpl
from core.plugins.strategy import to_float_if_integer
from core.session import Ranks

T = TypeVar("T")


class XLASpawnStrategy(Strategy):
    """Every process holds the whole model; gradients are averaged after a window's last backward.

    With one device torch_xla runs the work in the calling process; with several it starts them all, and the result
    of rank 0 comes home in a file.
    """

    operations: ClassVar[dict[ReduceOp, str]] = {"sum": "sum", "mean": "sum", "min": "min", "max": "max"}
    _waiting = False
    _parameters: tuple[nn.Parameter, ...] = ()

    @property
    def _many(self) -> bool:
        return self.ranks.world_size > 1

    @hookimpl
    def launch(self, run: Callable[[Ranks], T]) -> T:
        if self.plan.world_size == 1:
            outcome: list[T] = []
            work = lambda _: outcome.append(run(Ranks()))  # noqa: E731
            torch_xla.launch(work, debug_single_process=True)
            return outcome[0]
        with tempfile.TemporaryDirectory(prefix="interlock-xla-") as folder:
            path = Path(folder, "outcome")
            torch_xla.launch(_child, args=(run, str(path)))
            result: T = pickle.loads(path.read_bytes())
            return result

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        module.to(self.device)
        if self._many:  # every rank starts from rank 0's weights
            with torch.no_grad():
                tensors = [*module.parameters(), *module.buffers()]
                xla_model.collective_broadcast(tensors)
        self._parameters = tuple(module.parameters())
        return WrappedModel(module, make_optimizers())

    @hookimpl
    def shard_data(self) -> Shard:
        return Shard(self.ranks.global_rank, self.ranks.world_size)

    @hookimpl
    def skip_gradient_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        return self._without_exchange()

    @contextmanager
    def _without_exchange(self) -> Iterator[None]:
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    @hookimpl
    def backward(self, loss: Tensor) -> None:
        super().backward(loss)
        if self._many and not self._waiting:
            gradients = [p.grad for p in self._parameters if p.grad is not None]
            xla_model.all_reduce("sum", gradients, scale=1.0 / self.ranks.world_size)

    @hookimpl
    def reduce(self, tensor: Tensor, op: ReduceOp) -> Tensor:
        if not self._many:
            return tensor
        tensor = to_float_if_integer(tensor) if op == "mean" else tensor
        total: Tensor = xla_model.all_reduce(self.operations[op], tensor)
        return total / self.ranks.world_size if op == "mean" else total

    @hookimpl
    def broadcast(self, value: Any) -> Any:
        if not self._many:
            return value
        pieces = xla_model.rendezvous("interlock broadcast", pickle.dumps(value))
        return pickle.loads(pieces[0])

    @hookimpl
    def barrier(self, name: str, timeout: float | None) -> None:
        if self._many:
            xla_model.rendezvous(name)


def _child(_: int, run: Callable[[Ranks], object], path: str) -> None:
    """One new process; the runtime knows which it is."""
    rank, world_size = runtime.global_ordinal(), runtime.world_size()
    local_world_size = runtime.local_process_count() * runtime.addressable_device_count()
    outcome = run(Ranks(rank, runtime.local_ordinal(), rank // local_world_size, world_size, local_world_size))
    if rank == 0:
        Path(path).write_bytes(pickle.dumps(outcome))

"""The strategy of a run as people's code asks it: what ranks do together, with the arguments that it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from core.errors import InvalidArgument
from core.hookspecs import ReduceOp
from core.metrics.gathering import gather_tensors

if TYPE_CHECKING:
    from core.loops.run import Run

REDUCE_OPS: tuple[str, ...] = get_args(ReduceOp)
ASKED_FOR = "trainer.strategy.barrier()"


class StrategyView:
    """Stands for the run's strategy; everything but the methods below is the strategy's own.

    They go through the run's hooks, and every rank has to call them.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def barrier(self, name: str | None = None, timeout: float | None = None) -> None:
        """Wait until every rank is here.

        Raises:
            WaitTimeout: naming the ranks that did not come in time.
        """
        self._run.hooks.barrier(name or ASKED_FOR, timeout)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return what rank 0 has as ``obj``."""
        if src != 0:
            raise InvalidArgument(f"broadcast(src={src}): rank 0 alone tells the others here")
        return self._run.hooks.broadcast(obj)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Return the mean, sum, minimum or maximum of every rank's ``tensor``; ``group`` has no effect here."""
        asked = group if isinstance(group, str) else reduce_op  # a plugin's own hook takes the operation second
        op = str(asked).rpartition(".")[2].lower()
        op = "mean" if op == "avg" else op
        if op not in REDUCE_OPS:
            raise InvalidArgument(f"reduce_op={asked!r} must be one of {', '.join(REDUCE_OPS)}")
        return self._run.hooks.reduce(torch.as_tensor(tensor, device=self._run.device), op)

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Any:
        """Return the tensors of every rank, stacked; see :meth:`core.module.Module.all_gather`."""
        return gather_tensors(self._run, tensor, sync_grads)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Return whether all ranks, or any of them, say True."""
        return bool(self.reduce(torch.tensor(int(decision)), reduce_op="min" if all else "max"))

    @property
    def root_device(self) -> torch.device:
        """This process's device."""
        return self._run.device

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the first of all."""
        return self._run.is_rank_zero

    @property
    def global_rank(self) -> int:
        """This process's number among all."""
        return self._run.ranks.global_rank

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return self._run.ranks.world_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run.plugins["strategy"], name)

    @property  # type: ignore[misc]  # people ask isinstance(trainer.strategy, DDPStrategy)
    def __class__(self) -> type:
        return type(self._run.plugins["strategy"])

    def __repr__(self) -> str:
        return repr(self._run.plugins["strategy"])

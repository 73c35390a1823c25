"""The ranks that run the loop, among themselves."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store

from core.errors import RankFailed
from core.hookspecs import ReduceOp
from core.parallel.rendezvous import Rendezvous
from core.plugins.strategy import to_float_if_integer
from core.session import Ranks

_OPS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


class MainsMeeting(Rendezvous):
    """The meeting points of the ranks that run the loop; a failure of any rank ends the waiting."""

    def __init__(self, whole: Rendezvous, run: int, ranks: Ranks) -> None:
        super().__init__(PrefixStore(f"mains{run}", whole.store), ranks, whole.network)
        self._whole = whole

    def first_failure(self, store: Store | None = None) -> RankFailed | None:
        return self._whole.first_failure(store)


class Mains:
    """Exchange between the ranks that run the loop.

    Args:
        group: theirs.
        count: how many they are.
        device: where tensors are.
    """

    def __init__(self, group: dist.ProcessGroup | None, count: int, device: torch.device) -> None:
        self.group, self.count, self._device = group, count, device

    def reduce(self, tensor: Tensor, op: ReduceOp) -> Tensor:
        """See the hook ``reduce``."""
        if self.count == 1:
            return tensor
        value = (to_float_if_integer(tensor) if op == "mean" else tensor).clone()
        dist.all_reduce(value, _OPS[op], self.group)
        return value.div_(self.count) if op == "mean" else value

    def broadcast(self, value: Any) -> Any:
        """See the hook ``broadcast``."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, 0, self.group, self._device)
        return box[0]

    def wait(self) -> None:
        """Go on when all have come here."""
        self.reduce(torch.zeros(1, device=self._device), "max")

"""torch's process group: formed within a timeout, used for tensors and objects, given back at the end."""

from __future__ import annotations

import atexit
import gc
import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from core.errors import InvalidArgument
from core.hookspecs import ReduceOp
from core.parallel.networks import sockets_over
from core.parallel.rendezvous import Rendezvous
from core.plugins.strategy import to_float_if_integer

THREADS_LET_GO = 0.1
"""Seconds that gloo's threads get at the end of the program."""

_OPS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


def form(backend: str, rendezvous: Rendezvous, device: torch.device, timeout: float) -> Any:
    """Form the default process group and return it; None where it is not ours to give back.

    A group that the user's script has formed is used as it is; one that an earlier run left is given back first.

    Raises:
        InvalidArgument: when the script's group is not one of the run's ranks.
    """
    give_back_earlier()
    atexit.unregister(_end_with_program)  # once, and before the handlers of what stands on the group
    atexit.register(_end_with_program)
    _leave_garbage_to_this_process()
    ranks = rendezvous.ranks
    if dist.is_initialized():
        there, wanted = (dist.get_rank(), dist.get_world_size()), (ranks.global_rank, ranks.world_size)
        if there != wanted:
            raise InvalidArgument(
                f"this process is rank {wanted[0]} of {wanted[1]} in the run, but rank {there[0]} of {there[1]} in the "
                "process group that the program has formed\n  hint: leave it to the strategy to form the group"
            )
        return None
    with sockets_over(rendezvous.network, "GLOO_SOCKET_IFNAME"):
        dist.init_process_group(
            backend,
            store=rendezvous.group_store(),
            rank=ranks.global_rank,
            world_size=ranks.world_size,
            timeout=timedelta(seconds=timeout),
            device_id=device if device.index is not None else None,
        )
    _ours.append(dist.group.WORLD)
    return _ours[-1]


_ours: list[Any] = []
"""The default process group, while it is one that :func:`form` formed."""


def give_back(formed: Any) -> None:
    """Destroy ``formed``, what :func:`form` returned, unless a later run has formed another in its place."""
    if any(formed is own for own in _ours):
        give_back_earlier()


def give_back_earlier() -> None:
    """Destroy the group that an earlier run left; one that the program has formed by itself stays."""
    if _ours and dist.is_initialized() and dist.group.WORLD is _ours[-1]:
        dist.destroy_process_group()
    _ours.clear()


_left_to_this_process = False


def _leave_garbage_to_this_process() -> None:
    """Let no forked process, such as a loader's worker, collect what it inherits.

    Garbage may hold an earlier run's group, whose end waits for threads that a fork does not copy: for ever.
    """
    global _left_to_this_process
    if not _left_to_this_process and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=gc.freeze)
        _left_to_this_process = True


def _end_with_program() -> None:
    """Give the group back, and gloo's threads, whosever group it is, the time to let go of the last tensors.

    A thread that does so a moment later, when the interpreter is ending, aborts the process. The threads of a group
    that was given back before live on for as long as anything refers to it, such as a module wrapped for it.
    """
    give_back_earlier()
    time.sleep(THREADS_LET_GO)


def reduce(tensor: Tensor, op: ReduceOp) -> Tensor:
    """See the hook ``reduce``; works on a copy."""
    value = (to_float_if_integer(tensor) if op == "mean" else tensor).clone()
    dist.all_reduce(value, op=_OPS[op])
    return value.div_(dist.get_world_size()) if op == "mean" else value


def broadcast(value: Any, device: torch.device) -> Any:
    """See the hook ``broadcast``."""
    box = [value]
    dist.broadcast_object_list(box, src=0, device=device)
    return box[0]

"""torch's process group: formed within a timeout, used for tensors and objects, given back at the end."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from core.hookspecs import ReduceOp
from core.parallel.rendezvous import Rendezvous
from core.plugins.strategy import to_float_if_integer

_OPS = {"sum": dist.ReduceOp.SUM, "mean": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


def form(backend: str, rendezvous: Rendezvous, device: torch.device, start_timeout: float, timeout: float) -> bool:
    """Form the default process group; return whether it is ours to give back.

    A group that the user's script has formed already is used as it is.

    Raises:
        WaitTimeout: naming the ranks that did not come within ``start_timeout`` seconds.
    """
    if dist.is_initialized():
        return False
    rendezvous.meet("start of the run", start_timeout)
    with _loopback_only() if rendezvous.own else contextlib.nullcontext():
        dist.init_process_group(
            backend,
            store=rendezvous.next_group_store(),
            rank=rendezvous.ranks.global_rank,
            world_size=rendezvous.ranks.world_size,
            timeout=timedelta(seconds=timeout),
            device_id=device if device.index is not None else None,
        )
    # a group that is still there when the interpreter ends takes its threads down with an abort
    atexit.register(give_back)
    return True


def give_back() -> None:
    """Destroy the process group that :func:`form` formed, if it is still there."""
    atexit.unregister(give_back)
    if dist.is_initialized():
        dist.destroy_process_group()


@contextlib.contextmanager
def _loopback_only() -> Iterator[None]:
    """Keep gloo's sockets of a self-started run on the loopback device, unless the user chose one."""
    name = "GLOO_SOCKET_IFNAME"
    if name in os.environ or not sys.platform.startswith("linux"):
        yield
        return
    os.environ[name] = "lo"
    try:
        yield
    finally:
        del os.environ[name]


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

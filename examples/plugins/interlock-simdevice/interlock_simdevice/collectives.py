"""torch.distributed over gloo for tensors of the simulated device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves

from interlock_simdevice.device import run_on_host

_MEET = (
    "_allgather_base_",
    "_reduce_scatter_base_",
    "allgather_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "broadcast_",
    "gather_",
    "reduce_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
)
_PASS = ("barrier", "recv_", "recv_any_source_", "send")
"""Exchanges whose work object is handed on as it is: two ranks may both send before either receives."""

_libraries: list[torch.library.Library] = []


def register() -> None:
    """Let gloo exchange the memory behind the device's tensors; once per process."""
    if _libraries or not dist.is_available():
        return
    library = torch.library.Library("c10d", "IMPL")
    for name in (*_MEET, *_PASS):
        op = getattr(torch.ops.c10d, name).default
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that torch's own kernel, which refuses the device, is replaced
            library.impl(name, _kernel(op, waits=name in _MEET), "PrivateUse1", allow_override=True)
    _libraries.append(library)


def _kernel(op: Any, waits: bool) -> Callable[..., Any]:
    def exchange(*args: Any) -> Any:
        answer = run_on_host(op, *args)
        if not waits:
            return answer
        *tensors, work = answer if isinstance(answer, tuple) else (answer,)
        dist.Work.unbox(work).wait()
        done = _finished([leaf for leaf in tree_leaves(tensors) if isinstance(leaf, Tensor)] or _tensors(args))
        return (*tensors, done) if tensors else done

    return exchange


def _tensors(args: tuple[Any, ...]) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(args[0]) if isinstance(leaf, Tensor)]


def _finished(tensors: list[Tensor]) -> Any:
    """Return a work object that is done and whose future holds the device's tensors, not the host's."""
    future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
    future.set_result(tensors)
    return torch._C._distributed_c10d._create_work_from_future(future).boxed()

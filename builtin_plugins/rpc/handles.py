"""Parts of the model as the ranks that run the loop see them: a name and whom to ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed import rpc

from builtin_plugins.rpc.failures import Failure, is_echo, raise_failure, refuse_silence
from builtin_plugins.rpc.service import request

touched: set[str] = set()
"""The workers that took part in the forward of this step."""


class Handle:
    """One part of the model.

    Args:
        worker: the rank that has it.
        name: what it is called there.
        timeout: seconds that a request may take.
    """

    def __init__(self, worker: str, name: str, timeout: float) -> None:
        self.worker, self.name, self.timeout = worker, name, timeout
        self._flags: tuple[list[bool], dict[str, bool]] | None = None

    def ask(self, what: str, *arguments: Any) -> Any:
        """Return the answer to a request about this part."""
        return ask(self.worker, what, self.name, *arguments, timeout=self.timeout)

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], number: int | None = None) -> Any:
        """Start forward; return the future of what it gives."""
        touched.add(self.worker)
        what = ("forward", self.name, tuple(args), dict(kwargs), torch.is_grad_enabled(), number)
        return rpc.rpc_async(self.worker, request, args=what, timeout=self.timeout)

    def run_there(self, args: Sequence[Any], number: int | None = None) -> Any:
        """Start forward; return a reference to what it gives, which stays on the worker for the next part."""
        touched.add(self.worker)
        what: tuple[Any, ...] = ("forward", self.name, tuple(args), {}, torch.is_grad_enabled(), number)
        return rpc.remote(self.worker, request, args=what, timeout=self.timeout)

    def mirror(self, looks: nn.Module) -> None:
        """Give the part the training modes and ``requires_grad`` of its likeness here, if they have changed."""
        modes = [module.training for module in looks.modules()]
        flags = modes, {name: parameter.requires_grad for name, parameter in looks.named_parameters()}
        if flags != self._flags:
            self.ask("flags", *flags)
            self._flags = flags


def ask(worker: str, what: str, *arguments: Any, timeout: float) -> Any:
    """Return the answer of ``worker`` to a request.

    Raises:
        DistError: when the worker is gone.
    """
    return wait(rpc.rpc_async(worker, request, args=(what, *arguments), timeout=timeout), worker)


def ask_all(requests: Sequence[tuple[str, tuple[Any, ...]]], timeout: float) -> list[Any]:
    """Return the answers to requests (worker, what and arguments) that are made at the same time."""
    futures = [(rpc.rpc_async(worker, request, args=what, timeout=timeout), worker) for worker, what in requests]
    return [wait(future, worker) for future, worker in futures]


def wait(future: Any, worker: str) -> Any:
    """Return what a future brings, or raise what its request raised.

    Raises:
        DistError: when the worker is gone.
    """
    try:
        answer = future.wait()
    except RuntimeError as error:
        if is_echo(error):
            refuse_silence(error, worker)
        raise
    if isinstance(answer, Failure):
        raise_failure(answer, worker)
    return answer

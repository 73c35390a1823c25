"""Logical devices in one memory: threads that share the module's parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from core.data.chunks import Chunk, weighted_mean
from core.loops.loss import refuse_loss
from core.parallel.replicas.ambient import Ambient
from core.parallel.replicas.copies import Copy, copy_module
from core.parallel.replicas.random import RandomNumbers
from core.parallel.replicas.replica import Outcome, run_replica

T = TypeVar("T")


class ThreadReplicas:
    """Runs forward and backward of each replica in a thread of its own.

    The order in which gradients are summed is that of the replicas, and each replica has random numbers of its own,
    so that a run gives the same numbers again.
    """

    def __init__(self, count: int) -> None:
        self._threads = Threads(count)
        self._random = RandomNumbers()
        self._copies: list[Copy] = []

    def run(self, module: nn.Module, chunks: Sequence[Chunk], rest: tuple[Any, ...]) -> list[Outcome]:
        """See :class:`~core.parallel.replicas.step.Replicas`."""
        training = torch.is_grad_enabled()
        self._copies = [
            copy_module(module, with_gradients=training, own_buffers=i > 0 and module.training)
            for i in range(len(chunks))
        ]
        ambient = Ambient(torch.empty(0).device.type)
        steps = [
            partial(run_replica, copy.module, ambient, chunk.batch, rest)
            for copy, chunk in zip(self._copies, chunks, strict=True)
        ]
        with self._random.of_replicas(len(chunks), module.training) as inside:
            return self._threads.run([inside(i, step) for i, step in enumerate(steps)])

    def joined_loss(self, losses: list[Tensor], sizes: list[int], module: nn.Module) -> Tensor:
        """See :class:`~core.parallel.replicas.step.Replicas`."""
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        backward = _Backward(self._threads, losses, sizes, self._copies, parameters, self._random)
        self._copies = []
        value = weighted_mean([loss.detach() for loss in losses], sizes)
        return _JoinedLoss.apply(backward, value, *parameters)  # type: ignore[no-any-return, no-untyped-call]

    def close(self) -> None:
        """End the threads."""
        self._threads.close()


class _Backward:
    """Runs the replicas' backward side by side and sums their gradients."""

    def __init__(
        self,
        threads: Threads,
        losses: list[Tensor],
        sizes: list[int],
        copies: list[Copy],
        parameters: list[nn.Parameter],
        random: RandomNumbers,
    ) -> None:
        self._threads, self._losses, self._copies = threads, losses, copies
        self._shares = [size / sum(sizes) for size in sizes]
        self._parameters = parameters
        self._guard = random.forbidden_in_backward()

    def __call__(self, start: Tensor) -> list[Tensor | None]:
        pairs = zip(self._losses, self._shares, strict=True)
        self._threads.run([partial(self._run, loss, start.to(loss.dtype) * share) for loss, share in pairs])
        return [self._sum(parameter) for parameter in self._parameters]

    def _run(self, loss: Tensor, start: Tensor) -> None:
        with self._guard():
            try:
                torch.autograd.backward(loss, start)
            except Exception as error:
                refuse_loss("training_step returned", loss, self._parameters, error)
                raise

    def _sum(self, parameter: nn.Parameter) -> Tensor | None:
        total: Tensor | None = None
        for copy in self._copies:
            gradient = copy.parameters[parameter].grad
            if gradient is not None:
                total = gradient if total is None else total + gradient
        return total


class _JoinedLoss(torch.autograd.Function):
    """The loss of all replicas as a function of the module's parameters."""

    @staticmethod
    def forward(ctx: Any, backward: _Backward, value: Tensor, *parameters: nn.Parameter) -> Tensor:
        ctx.run_backward = backward
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, start: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.run_backward(start)


class Threads:
    """One thread for each replica, always the same; together they use the processors that torch may use."""

    def __init__(self, count: int) -> None:
        before = torch.get_num_threads()
        share = max(1, before // count)
        self._replicas = [
            ThreadPoolExecutor(1, f"replica-{number}", torch.set_num_threads, (share,)) for number in range(count)
        ]
        started = Barrier(count + 1)
        for replica in self._replicas:
            replica.submit(started.wait)
        started.wait()
        torch.set_num_threads(before)  # threads keep the number that they started with

    def run(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Run the tasks side by side and return their results; of several errors raise the first replica's."""
        futures = [replica.submit(task) for replica, task in zip(self._replicas, tasks, strict=False)]
        errors = [future.exception() for future in futures]
        for number, error in enumerate(errors):
            if error is not None:
                if hasattr(error, "add_note"):
                    error.add_note(f"raised in replica {number} of {len(tasks)}")
                raise error
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the threads; one that is still at work ends when its task does."""
        for replica in self._replicas:
            replica.shutdown(wait=False, cancel_futures=True)

"""Random numbers of replicas that run in threads.

torch has one generator in host memory for all threads: which replica would get which of its numbers would depend
on the threads' timing. Each replica therefore draws from a generator of its own, seeded from torch's in every step.
Looking at each operation of a replica costs some microseconds, so it is done only in models that draw numbers at
all; the first step of each kind finds out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core.errors import InterlockError

T = TypeVar("T")
Inside = Callable[[int, Callable[[], T]], Callable[[], T]]


class RandomNumbers:
    """Decides in each step whether replicas need random numbers of their own, and gives them."""

    def __init__(self) -> None:
        self._draws: dict[bool, bool] = {}
        self._drew = False

    @contextmanager
    def of_replicas(self, count: int, training: bool) -> Iterator[Inside[Any]]:
        """Return a function that wraps a replica's task, so that it draws numbers of its own."""
        before = torch.get_rng_state()
        if self._draws.get(training, True):
            modes = [OwnRandom(seed) for seed in _seeds(count)]
            yield lambda number, task: _inside(modes[number], task)
            self._drew = self._draws[training] = any(mode.drew for mode in modes)
            if self._drew:
                torch.randint(2, ())  # the next step gets other seeds
            return
        self._drew = False
        yield lambda number, task: task
        if not torch.equal(before, torch.get_rng_state()):
            self._draws[training] = True
            warnings.warn(
                "a step drew random numbers that no earlier step had drawn: in this one step the replicas took them in "
                "the order in which they came, which another run may not repeat",
                UserWarning,
                stacklevel=2,
            )

    def forbidden_in_backward(self) -> Callable[[], AbstractContextManager[Any]]:
        """Return what backward has to run in: where the step drew numbers, drawing more there would be wrong."""
        return NoRandom if self._drew else nullcontext


def _seeds(count: int) -> list[int]:
    """Return seeds that follow from the state of torch's generator, and leave it as it is."""
    twin = torch.Generator()
    twin.set_state(torch.get_rng_state())
    return torch.randint(2**62, (count,), generator=twin).tolist()


def _inside(mode: TorchDispatchMode, task: Callable[[], T]) -> Callable[[], T]:
    def run() -> T:
        with mode:
            return task()

    return run


class OwnRandom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, operations in this thread draw from a generator of its own."""

    _swapping = Lock()

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drew = False
        self._generator = torch.Generator()
        self._generator.manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not draws(func) or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        self.drew = True
        if takes_generator(func):
            return func(*args, **{**kwargs, "generator": self._generator})
        return self._with_swapped_state(func, args, kwargs)

    def _with_swapped_state(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that only draws from torch's generator, while that one stands where ours does."""
        with self._swapping:
            before = torch.get_rng_state()
            torch.set_rng_state(self._generator.get_state())
            try:
                return func(*args, **kwargs)
            finally:
                self._generator.set_state(torch.get_rng_state())
                torch.set_rng_state(before)


class NoRandom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, drawing random numbers is an error."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if draws(func):
            raise InterlockError(
                f"backward drew random numbers ({func}): activation checkpointing runs forward again, and replicas in "
                "threads cannot repeat the numbers of the first time\n"
                "  hint: leave dropout out of checkpointed parts, or take a strategy with one process per device"
            )
        return func(*args, **(kwargs or {}))


@cache
def draws(func: Any) -> bool:
    """Tell whether an operation takes random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


@cache
def takes_generator(func: Any) -> bool:
    """Tell whether an operation can be given a generator."""
    return any(argument.name == "generator" for argument in func._schema.arguments)

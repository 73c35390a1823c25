"""Remember what a search is going to change, and put it back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from core.data.combined import CombinedLoader
from core.seed import get_rng_state, set_rng_state

OBJECTS = (Optimizer, LRScheduler, torch.amp.GradScaler)
"""Objects whose attributes are looked into, beside modules and loaders; of others only the reference is kept."""
LONG = 10_000
"""Containers with more items are taken for data: their items are not looked into."""


class Remembered:
    """What things were like at one moment, kept in memory.

    Tensors are copied to host memory; objects and containers keep their identity, and get their contents back. So what
    somebody else holds, such as an optimizer that holds parameters, is right again too. :meth:`restore` may be called
    more than once.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}

    def restore(self) -> None:
        """Put everything back."""
        for undo in reversed(self._undo):
            undo()

    def random_numbers(self) -> None:
        """Remember the state of every generator of this process."""
        state = get_rng_state()
        self._undo.append(lambda: set_rng_state(state))

    def attributes(self, owner: object, *, inside: bool = True) -> None:
        """Remember the attributes of ``owner``, and with ``inside`` what is in them."""
        own = vars(owner)
        before = dict(own)

        def undo() -> None:
            own.clear()
            own.update(before)

        self._undo.append(undo)
        if inside:
            for value in before.values():
                self.value(value)

    def value(self, value: Any) -> None:
        """Remember what is in ``value``, where it is of a kind that changes in place."""
        if id(value) in self._seen:
            return
        if isinstance(value, Tensor):
            self._seen[id(value)] = value
            self._tensor(value)
        elif isinstance(value, torch.Generator):
            self._seen[id(value)] = value
            state = value.get_state()
            self._undo.append(lambda: _set(value.set_state, state))
        elif isinstance(value, nn.Module):
            self._seen[id(value)] = value
            self._module(value)
        elif isinstance(value, DataLoader | CombinedLoader):
            self._seen[id(value)] = value
            self.loader(value)
        elif isinstance(value, OBJECTS):
            self._seen[id(value)] = value
            self.attributes(value)
        elif isinstance(value, dict | list | set | deque | tuple):
            self._seen[id(value)] = value
            self._container(value)

    def loader(self, loader: Any) -> None:
        """Remember a loader and the parts of it that are told which epoch it is."""
        if isinstance(loader, CombinedLoader):
            for one in loader.flattened:
                self.value(one)
            return
        if hasattr(loader, "__dict__"):
            self.attributes(loader, inside=False)
        batch_sampler = getattr(loader, "batch_sampler", None)
        samplers = [getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
        for part in (*samplers, getattr(loader, "dataset", None)):
            if hasattr(part, "__dict__") and id(part) not in self._seen:
                self._seen[id(part)] = part
                self.attributes(part, inside=False)
                self.value(getattr(part, "generator", None))
        self.value(getattr(loader, "generator", None))

    def _module(self, module: nn.Module) -> None:
        kind = type(module)  # some strategies swap it

        def undo() -> None:
            if type(module) is not kind:
                module.__class__ = kind

        self._undo.append(undo)
        self.attributes(module)

    def _container(self, value: Any) -> None:
        items: Iterable[Any] = [*value.values(), *value.keys()] if isinstance(value, dict) else list(value)
        if isinstance(value, dict):
            pairs = list(value.items())
            self._undo.append(lambda: _refill(value, value.update, pairs))
        elif isinstance(value, list | deque):
            before = list(value)
            self._undo.append(lambda: _refill(value, value.extend, before))
        elif isinstance(value, set):
            members = list(value)
            self._undo.append(lambda: _refill(value, value.update, members))
        if len(value) <= LONG:
            for item in items:
                self.value(item)

    def _tensor(self, tensor: Tensor) -> None:
        if not _has_own_memory(tensor):
            return
        with torch.no_grad():
            storage = tensor.to_local() if hasattr(tensor, "to_local") else tensor.data
            saved = _to_host(storage)
        whole, leaf = storage is not tensor and not hasattr(tensor, "to_local"), tensor.is_leaf
        required, gradient = tensor.requires_grad, tensor.grad if leaf else None
        self.value(gradient)

        def undo() -> None:
            with torch.no_grad():
                storage.copy_(saved)
            if whole and (tensor.data_ptr() != storage.data_ptr() or tensor.dtype != storage.dtype):
                tensor.data = storage  # it was moved to another device, or to another dtype
            if leaf:
                tensor.requires_grad_(required)
                tensor.grad = gradient

        self._undo.append(undo)


def _has_own_memory(tensor: Tensor) -> bool:
    """Tell whether the tensor's values can be copied out and in again, as is so for all but special kinds."""
    special = tensor.is_meta or tensor.is_inference() or is_lazy(tensor)
    return not special and tensor.layout is torch.strided


def _to_host(tensor: Tensor) -> Tensor:
    copied = tensor.detach().cpu()
    return copied.clone() if copied.data_ptr() == tensor.data_ptr() else copied


def _refill(container: Any, fill: Callable[[Any], Any], items: Any) -> None:
    container.clear()
    fill(items)


def _set(setter: Callable[[Any], Any], state: Any) -> None:
    setter(state)

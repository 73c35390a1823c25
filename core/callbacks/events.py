"""Who is called at each point of a run, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from core.callbacks.base import Callback

if TYPE_CHECKING:
    from core.trainer import Trainer

Listener = Callable[..., Any]


class Events:
    """The listeners of one run.

    A callback that does not fill a hook is left out of it, so a point that nobody listens to is an empty
    tuple and costs the loop nothing.
    """

    def __init__(self, trainer: Trainer, module: nn.Module, callbacks: Sequence[Callback]) -> None:
        self._trainer, self._module, self._callbacks = trainer, module, callbacks

    def listeners(self, name: str) -> tuple[Listener, ...]:
        """Return what to call at the point ``name``: the callbacks that fill it, then the module's own method."""
        default = getattr(Callback, name)
        found: list[Listener] = [
            partial(getattr(callback, name), self._trainer, self._module)
            for callback in self._callbacks
            if getattr(type(callback), name, None) is not default or name in vars(callback)
        ]
        own = getattr(self._module, name, None)
        if callable(own):
            found.append(own)
        return tuple(found)

    def fire(self, name: str, *arguments: Any) -> None:
        """Call every listener of ``name``, in order; for points outside the hot loop."""
        for listener in self.listeners(name):
            listener(*arguments)

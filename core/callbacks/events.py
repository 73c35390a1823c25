"""Who is called at each point of a run, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from core.callbacks.base import Callback
from core.callbacks.logging import let_log
from core.userhooks import has_run_hooks, overridden

if TYPE_CHECKING:
    from core.trainer import Trainer

Listener = Callable[..., Any]

DATA_HOOKS = frozenset({"prepare_data", "setup", "teardown", "on_exception"})
"""Points that a data module is told about."""
EVERYDAY_NAMES = frozenset({"prepare_data", "setup", "teardown"})
"""Names that a plain ``nn.Module`` may use for something else."""


class Events:
    """The listeners of one run.

    A callback that does not fill a hook is left out of it, so a point that nobody listens to is an empty
    tuple and costs the loop nothing.
    """

    def __init__(
        self, trainer: Trainer, module: nn.Module, callbacks: Sequence[Callback], datamodule: object = None
    ) -> None:
        self._trainer, self._module, self._callbacks = trainer, module, callbacks
        let_log(callbacks)
        self._datamodule = datamodule
        self._run_hooks = has_run_hooks(module)

    def listeners(self, name: str) -> tuple[Listener, ...]:
        """Return what to call at the point ``name``: callbacks that fill it, data module, then the module itself."""
        found = self._of_callbacks(name, after_module=False)
        if name in DATA_HOOKS and self._datamodule is not None:
            found.append(getattr(self._datamodule, name))
        if self._run_hooks or name not in EVERYDAY_NAMES:
            own = overridden(self._module, name)
            if own is not None:
                found.append(self._timed(type(self._module).__name__, name, own))
        return (*found, *self._of_callbacks(name, after_module=True))

    def _of_callbacks(self, name: str, *, after_module: bool) -> list[Listener]:
        """Return the callbacks that fill ``name``; those that keep what happened run when the module is done."""
        found: list[Listener] = []
        for callback in self._callbacks:
            method = overridden(callback, name)
            if method is not None and getattr(callback, "after_module", False) == after_module:
                listener = partial(method, self._trainer, self._module)
                found.append(self._timed(type(callback).__name__, name, listener))
        return found

    def users_listen(self, name: str) -> bool:
        """Tell whether anyone but the callbacks of ours listens to ``name``."""
        methods = [overridden(owner, name) for owner in (self._module, *self._callbacks)]
        return any(
            not str(getattr(m, "__module__", "")).startswith("core.callbacks.") for m in methods if m is not None
        )

    def _timed(self, owner: str, name: str, listener: Listener) -> Listener:
        return self._trainer.profiler.wrap(f"{owner}.{name}", listener)

    def fire(self, name: str, *arguments: Any) -> None:
        """Call every listener of ``name``, in order; for points outside the hot loop."""
        for listener in self.listeners(name):
            listener(*arguments)

"""Measure what a run spends its time on; without a profiler nothing is measured and nothing is called."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from core.plugins.binding import Hooks
    from core.trainer import Trainer

F = TypeVar("F", bound=Callable[..., Any])

HOOKS = (
    "wrap_model",
    "transfer_batch",
    "backward",
    "unscale_gradients",
    "clip_gradients",
    "optimizer_step",
    "reduce",
    "broadcast",
    "barrier",
    "gather_state",
    "restore_state",
)
"""The hooks whose calls are measured; of the others a call says nothing about time."""


class Profiler:
    """Measures nothing. A subclass measures, by filling :meth:`profile`, :meth:`wrap` and :meth:`finish`.

    What a run calls often is wrapped once, when the run begins: hooks, steps, callbacks, the reading of loaders. So a
    run without a profiler makes the calls that it would make if there were none.

    Args:
        dirpath: folder for files; by default the logger's.
        filename: name for files; a subclass appends what tells its files apart.
    """

    active = False
    """Whether it measures."""

    def __init__(self, dirpath: str | os.PathLike[str] | None = None, filename: str | None = None) -> None:
        self.dirpath = None if dirpath is None else os.fspath(dirpath)
        self.filename = filename

    def profile(self, action: str) -> AbstractContextManager[Any]:
        """Return a context whose inside is measured as ``action``; for a module's own code."""
        return nullcontext()

    def wrap(self, action: str, function: F) -> F:
        """Return ``function`` so that each call is measured as ``action``."""
        return function

    def batches(self, action: str, batches: Iterator[Any]) -> Iterator[Any]:
        """Return ``batches`` so that each reading is measured as ``action``."""
        if not self.active:
            return batches
        following = self.wrap(action, batches.__next__)

        def read() -> Iterator[Any]:
            while True:
                try:
                    batch = following()
                except StopIteration:
                    return
                yield batch

        return read()

    def attach(self, hooks: Hooks) -> None:
        """Wrap the hooks of a run, those left out that do nothing in it."""
        if self.active:
            for name in HOOKS:
                if hooks.changes(name):
                    setattr(hooks, name, self.wrap(name, getattr(hooks, name)))

    def finish(self, trainer: Trainer, stage: str) -> None:
        """Show what was measured, and begin anew; called in every process when a stage is over."""

    def path(self, trainer: Trainer, stage: str, ending: str) -> Path:
        """Return where this process writes a file about ``stage``."""
        folder = self.dirpath or trainer.log_dir or trainer.default_root_dir
        name = "-".join([self.filename or "profile", stage, f"rank{trainer.global_rank}"])
        return Path(folder, f"{name}{ending}")

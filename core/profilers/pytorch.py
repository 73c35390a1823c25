"""torch's profiler, with a trace to look at."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from core.arguments import flag, whole
from core.profilers.base import Profiler

if TYPE_CHECKING:
    from core.trainer import Trainer

F = TypeVar("F", bound=Callable[..., Any])


class PyTorchProfiler(Profiler):
    """Records a few steps with :class:`torch.profiler.profile`, every operation with the action it belongs to.

    When they are over each process writes a trace, ``<dirpath>/<filename>-<stage>-rank<n>.pt.trace.json``, for
    https://ui.perfetto.dev or a browser's own viewer; rank 0 prints a table of the operations.

    Args:
        dirpath: folder for the traces; by default the logger's.
        filename: name of the traces.
        steps: steps that are recorded; a trace of a whole training would not fit into memory.
        wait: steps before them.
        export_to_chrome: write the trace.
        row_limit: rows of the table; 0 for none.
        sort_by_key: what the table is sorted by; by default the time on the device, on the host where there is none.
        group_by_input_shapes: tell operations on other sizes apart.
        profiler_kwargs: for ``torch.profiler.profile``, such as ``with_stack=True``.
    """

    active = True

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        steps: int = 5,
        wait: int = 0,
        export_to_chrome: bool = True,
        row_limit: int = 20,
        sort_by_key: str | None = None,
        group_by_input_shapes: bool = False,
        **profiler_kwargs: Any,
    ) -> None:
        super().__init__(dirpath, filename)
        self.steps, self.wait = whole("steps", steps, least=1), whole("wait", wait, least=0)
        self.export_to_chrome = flag("export_to_chrome", export_to_chrome)
        self.row_limit, self.sort_by_key = whole("row_limit", row_limit, least=0), sort_by_key
        self.group_by_input_shapes = flag("group_by_input_shapes", group_by_input_shapes)
        if group_by_input_shapes:
            profiler_kwargs.setdefault("record_shapes", True)
        self._arguments = profiler_kwargs
        self._recording: Any = None
        self._recorded: Any = None
        self._seen = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recording": None, "_recorded": None}

    def attach(self, hooks: Any) -> None:
        super().attach(hooks)
        self._seen, self._recorded = 0, None

    def profile(self, action: str) -> AbstractContextManager[Any]:
        return torch.profiler.record_function(action) if self._recording is not None else nullcontext()

    def wrap(self, action: str, function: F) -> F:
        begins_step = action.endswith("_step") and action != "optimizer_step"

        def recorded(*args: Any, **kwargs: Any) -> Any:
            if begins_step:
                self._next_step()
            if self._recording is None:
                return function(*args, **kwargs)
            with torch.profiler.record_function(action):
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]  # called like it

    def _next_step(self) -> None:
        if self._seen == self.wait and self._recorded is None:
            self._recording = torch.profiler.profile(**self._arguments)
            self._recording.start()
        elif self._seen == self.wait + self.steps:
            self._stop()
        self._seen += 1

    def _stop(self) -> None:
        if self._recording is not None:
            self._recording.stop()
            self._recorded, self._recording = self._recording, None

    def finish(self, trainer: Trainer, stage: str) -> None:
        self._stop()
        recorded, self._recorded = self._recorded, None
        if recorded is None:
            return
        if self.row_limit and trainer.is_global_zero:
            averages = recorded.key_averages(group_by_input_shape=self.group_by_input_shapes)
            used = torch.profiler.ProfilerActivity.CPU
            on_device = any(activity is not used for activity in recorded.activities)
            order = self.sort_by_key or ("device_time_total" if on_device else "cpu_time_total")
            print(averages.table(sort_by=order, row_limit=self.row_limit), file=sys.stderr)
        if self.export_to_chrome:
            path = self.path(trainer, stage, ".pt.trace.json")
            path.parent.mkdir(parents=True, exist_ok=True)
            recorded.export_chrome_trace(str(path))

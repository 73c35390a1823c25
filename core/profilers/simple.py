"""A table of the time that each action took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from core.profilers.base import Profiler

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from core.trainer import Trainer

F = TypeVar("F", bound=Callable[..., Any])


class Row(NamedTuple):
    """What one action came to."""

    action: str
    calls: int
    total: float
    share: float


class SimpleProfiler(Profiler):
    """Counts calls and adds up seconds, and shows a table on standard error when a stage is over.

    An action's time holds that of the actions inside it. On a device that works by itself, such as a GPU, it is the
    time to hand work over, not to do it.

    Args:
        dirpath: folder for a text file of each process; by default the logger's, where ``filename`` is given.
        filename: name of that file; without it and ``dirpath`` there is none.
        console: where to draw; standard error by default.
    """

    active = True

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        console: Console | None = None,
    ) -> None:
        super().__init__(dirpath, filename)
        self._console = console
        self._spent: dict[str, list[float]] = {}
        self._start = time.perf_counter()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_console": None}

    @contextmanager
    def profile(self, action: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._add(action, time.perf_counter() - start)

    def wrap(self, action: str, function: F) -> F:
        clock, add = time.perf_counter, self._add

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = clock()
            try:
                return function(*args, **kwargs)
            finally:
                add(action, clock() - start)

        return timed  # type: ignore[return-value]  # called like it

    def _add(self, action: str, seconds: float) -> None:
        spent = self._spent.setdefault(action, [0, 0.0])
        spent[0] += 1
        spent[1] += seconds

    def attach(self, hooks: Any) -> None:
        super().attach(hooks)
        self._spent, self._start = {}, time.perf_counter()

    def rows(self) -> list[Row]:
        """Return what was measured since the stage began, the longest first."""
        whole = max(time.perf_counter() - self._start, 1e-9)
        rows = [Row(action, int(calls), total, total / whole) for action, (calls, total) in self._spent.items()]
        return sorted(rows, key=lambda row: row.total, reverse=True)

    def finish(self, trainer: Trainer, stage: str) -> None:
        rows = self.rows()
        if not rows:
            return
        from rich.console import Console  # only who shows a table pays for the import

        if trainer.is_global_zero:
            console = self._console or Console(stderr=True)
            console.print(_table(rows, f"time of {stage}, rank 0"))
        if self.dirpath or self.filename:
            path = self.path(trainer, stage, ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8") as file:
                Console(file=file, width=120).print(_table(rows, f"time of {stage}, rank {trainer.global_rank}"))


def _table(rows: list[Row], title: str) -> Table:
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False
    )
    table.add_column("action", overflow="fold")
    for name in ("calls", "mean ms", "total s", "share"):
        table.add_column(name, justify="right")
    for row in rows:
        mean = row.total / row.calls * 1e3
        table.add_row(row.action, str(row.calls), f"{mean:.3f}", f"{row.total:.3f}", f"{row.share:.1%}")
    return table

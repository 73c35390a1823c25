"""Show progress: a live line in a terminal, one line per epoch elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from core.callbacks.base import Callback
from core.data.nested import batch_size_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from core.trainer import Trainer


class ProgressBar(Callback):
    """A bar for each epoch with the values logged with ``prog_bar=True``, samples per second and the time left.

    Args:
        refresh_every: seconds between two looks at the metrics; drawing costs milliseconds, so it is not every step.
        console: where to draw; by default standard error, and plain lines when that is no terminal.
    """

    def __init__(self, refresh_every: float = 0.25, console: Console | None = None) -> None:
        self.refresh_every = refresh_every
        self._console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._active = False
        self._next = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_console": None, "_bar": None, "_task": None}

    def on_fit_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._active = trainer.is_global_zero
        if not self._active:
            return
        from rich.console import Console  # only the process that draws pays for the import

        console = self._console or Console(stderr=True)
        self._console = console
        self._fit_start, self._batches_in_fit = time.monotonic(), 0
        if console.is_terminal:
            self._bar = _make_bar(console)
            self._bar.start()

    def on_train_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        if not self._active:
            return
        self._epoch_start = time.monotonic()
        self._batches, self._size = 0, 1
        self._total = trainer.num_training_batches
        if self._bar is not None:
            total = self._total
            done = trainer.progress.batch
            self._task = self._bar.add_task(_title(trainer), total=total, completed=done, speed="", left="", metrics="")
            self._bar.refresh()

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not self._active:
            return
        self._batches += 1
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self.refresh_every
            self._size = batch_size_of(batch)
            self._draw(trainer, batch_idx + 1)

    def on_validation_start(self, trainer: Trainer, module: nn.Module) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=f"{_title(trainer)} validating", refresh=True)

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        if not self._active:
            return
        self._batches_in_fit += self._batches
        seconds = time.monotonic() - self._epoch_start
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=_title(trainer))
            self._draw(trainer, trainer.progress.batch)
            self._bar.stop_task(self._task)
        elif self._console is not None:
            rate = f"{self._batches * self._size * trainer.world_size / max(seconds, 1e-9):.0f} samples/s"
            text = f"{_title(trainer)}  {format_metrics(trainer.progress_bar_metrics)}  {rate}  {seconds:.1f} s"
            self._console.print(text, highlight=False, soft_wrap=True)

    def _draw(self, trainer: Trainer, done: int) -> None:
        if self._bar is None or self._task is None:
            return
        seconds = max(time.monotonic() - self._epoch_start, 1e-9)
        rate = self._batches * self._size * trainer.world_size / seconds
        self._bar.update(
            self._task,
            completed=done,
            speed=f"{rate:,.0f} samples/s",
            left=self._time_left(trainer, done),
            metrics=format_metrics(trainer.progress_bar_metrics),
            refresh=True,
        )

    def _time_left(self, trainer: Trainer, done: int) -> str:
        """Return the time until all epochs are done, going by this fit so far."""
        if self._total is None or trainer.max_epochs < 0:
            return ""
        behind = self._batches_in_fit + self._batches
        ahead = self._total - done + self._total * (trainer.max_epochs - trainer.current_epoch - 1)
        seconds = ahead * (time.monotonic() - self._fit_start) / max(behind, 1)
        minutes, rest = divmod(int(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{rest:02} left"

    def teardown(self, trainer: Trainer, module: nn.Module, stage: str) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar, self._task, self._active = None, None, False


def _title(trainer: Trainer) -> str:
    of = f"/{trainer.max_epochs}" if trainer.max_epochs >= 0 else ""
    return f"epoch {trainer.current_epoch + 1}{of}"


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Return ``name value`` pairs on one line."""
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _make_bar(console: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}", style="dim"),
        TextColumn("{task.fields[left]}", style="dim"),
        TextColumn("{task.fields[metrics]}"),
        console=console,
        auto_refresh=False,  # a drawing thread would take turns with the training loop
    )

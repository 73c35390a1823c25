"""Show progress: a live bar in a terminal, and one line for each finished epoch, there and elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from core.callbacks.base import Callback
from core.data.nested import batch_size_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from core.trainer import Trainer

BAR_WIDTH = 24


class ProgressBar(Callback):
    """A bar with samples per second, the time left, and the values logged with ``prog_bar=True``.

    Each finished epoch leaves one line behind. Where there is no terminal, those lines are all.

    Args:
        refresh_every: seconds between two looks at the metrics; drawing costs milliseconds, so it is not every step.
        console: where to draw; standard error by default.
    """

    def __init__(self, refresh_every: float = 0.25, console: Console | None = None) -> None:
        self.refresh_every = refresh_every
        self._console = console
        self._live: Live | None = None
        self._active = self._in_epoch = False
        self._next = self._last = self._fit_start = self._epoch_start = 0.0
        self._batches = self._batches_in_fit = 0
        self._size = self._last_size = 1
        self._total: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_console": None, "_live": None}

    def on_fit_start(self, trainer: Trainer, module: nn.Module) -> None:
        self._active = trainer.is_global_zero
        if not self._active:
            return
        from rich.console import Console  # only the process that draws pays for the import
        from rich.live import Live

        self._console = self._console or Console(stderr=True)
        self._fit_start, self._batches_in_fit = time.monotonic(), 0
        if self._console.is_interactive:
            # a drawing thread would take turns with the training loop
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def on_train_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        if not self._active:
            return
        self._epoch_start = self._last = time.monotonic()
        self._batches, self._total, self._in_epoch = 0, trainer.num_training_batches, True
        self._draw(trainer, trainer.progress.batch)

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not self._active:
            return
        self._batches += 1
        self._last = now = time.monotonic()
        if now >= self._next or self._batches == 1:
            self._next = now + self.refresh_every
            self._size = self._last_size = batch_size_of(batch)
            self._draw(trainer, batch_idx + 1)
        elif batch_idx + 1 == self._total:
            self._last_size = batch_size_of(batch)  # the last batch of an epoch is often smaller

    def on_validation_start(self, trainer: Trainer, module: nn.Module) -> None:
        if self._in_epoch:
            self._draw(trainer, trainer.progress.batch, "validating")

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        if not self._active:
            return
        self._in_epoch = False
        self._batches_in_fit += self._batches
        if self._live is not None:
            self._live.update("")  # the line below takes the bar's place until the next epoch begins
        if self._console is not None:
            seconds = time.monotonic() - self._epoch_start
            parts = [_title(trainer), f"{seconds:.1f} s", self._speed(trainer), *format_metrics(_over_epoch(trainer))]
            text = join_parts(parts, self._console.width if self._console.is_terminal else None)
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def teardown(self, trainer: Trainer, module: nn.Module, stage: str) -> None:
        if self._live is not None:
            self._live.transient = not self._in_epoch  # a run that was broken off leaves its bar to look at
            self._live.stop()
        self._live, self._active, self._in_epoch = None, False, False

    def _draw(self, trainer: Trainer, done: int, doing: str = "") -> None:
        if self._live is not None:
            self._live.update(self._picture(trainer, done, doing), refresh=True)

    def _picture(self, trainer: Trainer, done: int, doing: str) -> RenderableType:
        """Return the bar, the values beside it where the terminal is wide enough, else below."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar as Bar
        from rich.table import Table
        from rich.text import Text

        count = f"{done}/{self._total}" if self._total is not None else f"{done}"
        rest = [count, self._speed(trainer), doing or self._time_left(trainer, done)]
        values = format_metrics(trainer.progress_bar_metrics)
        room = self._console.width if self._console is not None else 0
        beside = len("  ".join([_title(trainer), " " * BAR_WIDTH, *rest, *values])) < room
        bar = Bar(total=self._total, completed=done, width=BAR_WIDTH, pulse=self._total is None)
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_row(_title(trainer), bar, *(Text(text, no_wrap=True) for text in rest), *(values if beside else ()))
        return row if beside or not values else Group(row, Text("  " + join_parts(values, room - 2)))

    def _speed(self, trainer: Trainer) -> str:
        """Return the samples per second of this epoch over all ranks, taking the others' batches for as large."""
        if not self._batches:
            return ""
        samples = (self._batches - 1) * self._size + self._last_size
        rate = samples * trainer.world_size / max(self._last - self._epoch_start, 1e-9)
        return f"{rate:,.0f} samples/s"

    def _time_left(self, trainer: Trainer, done: int) -> str:
        """Return the time until epochs or steps run out, going by this fit so far; "" where it has no known end."""
        ahead = []
        if self._total is not None and trainer.max_epochs >= 0:
            ahead.append(self._total - done + self._total * (trainer.max_epochs - trainer.current_epoch - 1))
        if trainer.max_steps >= 0:
            ahead.append((trainer.max_steps - trainer.global_step) * trainer.accumulate_grad_batches)
        behind = self._batches_in_fit + self._batches
        if not ahead or not behind:
            return ""
        return f"{format_time(min(ahead) * (time.monotonic() - self._fit_start) / behind)} left"


def _title(trainer: Trainer) -> str:
    if trainer.max_epochs < 0:
        return f"epoch {trainer.current_epoch + 1}"
    return f"epoch {trainer.current_epoch + 1:>{len(str(trainer.max_epochs))}}/{trainer.max_epochs}"


def _over_epoch(trainer: Trainer) -> dict[str, float]:
    """Return what the finished epoch came to; values of single steps only if training logged nothing else."""
    values, results = trainer.progress_bar_metrics, trainer.results
    assert results is not None, "an epoch has results"
    single = results.step_metrics(prog_bar=True) if results.epoch_metrics(prog_bar=True) else {}
    return {name: value for name, value in values.items() if name not in single}


def format_time(seconds: float) -> str:
    """Return minutes and seconds, and hours where there are any."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_metrics(metrics: Mapping[str, float]) -> list[str]:
    """Return ``name value`` pairs, the values as wide as each other where they are of common size."""
    return [f"{name} {_number(value)}" for name, value in metrics.items()]


def join_parts(parts: Sequence[str], width: int | None) -> str:
    """Return the parts on one line, or on several where they are wider than ``width``; no part is broken."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}  {part}" if lines[-1] else part
        if width is None or len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.3g}"

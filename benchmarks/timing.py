"""Time contenders side by side: interleaved rounds, medians, ratios, a table and JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table


class Clock:
    """Counts steps and notes the time at two of them, so that set-up and the end of a run stay out of the figure.

    Every contender calls :meth:`tick` once per step, at the start of its forward.
    """

    def __init__(self, warmup: int, steps: int) -> None:
        self.warmup, self.steps = warmup, steps
        self._count = 0
        self._start = self._end = 0.0

    @property
    def total(self) -> int:
        """Steps that a contender has to run."""
        return self.warmup + self.steps + 1

    def reset(self) -> None:
        """Begin a new run."""
        self._count = 0

    def tick(self) -> None:
        """Note that a step begins."""
        if self._count == self.warmup:
            self._start = time.perf_counter()
        elif self._count == self.warmup + self.steps:
            self._end = time.perf_counter()
        self._count += 1

    def microseconds(self) -> float:
        """Return the time per step of the run."""
        if self._count < self.total:
            raise RuntimeError(f"the contender ran {self._count} steps, {self.total} were asked for")
        return (self._end - self._start) / self.steps * 1e6


def measure(contenders: Mapping[str, Callable[[], None]], clock: Clock, rounds: int) -> dict[str, list[float]]:
    """Run every contender once per round, in turn; the order turns too, so that drift hits all alike."""
    names = list(contenders)
    times: dict[str, list[float]] = {name: [] for name in names}
    console = Console(stderr=True)  # one of our own: peers clear the bars of the shared one
    for number in track(
        range(rounds + 1), description="rounds", console=console, disable=os.environ.get("RANK", "0") != "0"
    ):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            clock.reset()
            contenders[name]()
            if number:  # the first round warms caches and allocators
                times[name].append(clock.microseconds())
    return times


def summarize(times: Mapping[str, list[float]], base: str) -> list[dict[str, float | str]]:
    """Return median, spread, and the median of the ratios to ``base`` taken round by round."""
    rows: list[dict[str, float | str]] = []
    for name, values in times.items():
        ratios = [value / reference for value, reference in zip(values, times[base], strict=True)]
        quarters = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        rows.append(
            {
                "contender": name,
                "median_us": round(statistics.median(values), 1),
                "q1_us": round(quarters[0], 1),
                "q3_us": round(quarters[2], 1),
                "ratio": round(statistics.median(ratios), 3),
            }
        )
    return rows


def show(title: str, rows: list[dict[str, float | str]], base: str) -> None:
    """Print the table."""
    table = Table(title=title)
    for column in ("contender", "us per step", "quartiles", f"over {base}"):
        table.add_column(column, justify="left" if column == "contender" else "right")
    for row in rows:
        spread = f"{row['q1_us']} - {row['q3_us']}"
        table.add_row(str(row["contender"]), f"{row['median_us']}", spread, f"{row['ratio']:.3f}")
    Console(width=100).print(table)


def write(path: str | None, rows: list[dict[str, float | str]], settings: argparse.Namespace) -> None:
    """Write rows and circumstances as JSON, where asked."""
    if path:
        facts = {"python": platform.python_version(), "torch": torch.__version__, "settings": vars(settings)}
        Path(path).write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n")
        print(f"wrote {path}")


def arguments(description: str, example: str, **defaults: int) -> argparse.ArgumentParser:
    """Return the options that all benchmarks share."""
    parser = argparse.ArgumentParser(
        description=description,
        epilog=f"example: {example}",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for name, value in {"rounds": 15, "steps": 300, "warmup": 20, **defaults}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="run contenders whose name holds one of these")
    return parser

"""How much memory a process held at most while something ran, as the system counts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist
from rich.console import Console
from rich.table import Table

CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
FORGET_PEAK = "5"
"""What makes the kernel begin its count of the peak anew."""


class Peaks:
    """The peak of each contender, in MiB; nothing is noted on systems that do not tell it."""

    def __init__(self) -> None:
        self.mib: dict[str, float] = {}

    def noted(self, name: str, run: Callable[[], None]) -> Callable[[], None]:
        """Return ``run`` with its peak noted each time."""
        if not CLEAR.exists():
            return run

        def call() -> None:
            CLEAR.write_text(FORGET_PEAK)
            run()
            line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
            self.mib[name] = max(self.mib.get(name, 0.0), int(line.split()[1]) / 1024)

        return call

    def by_rank(self) -> dict[str, list[float]]:
        """Return the peaks of every rank; all of them call it."""
        every: list[dict[str, float]] = [self.mib]
        if dist.is_initialized():
            every = [{} for _ in range(dist.get_world_size())]
            dist.all_gather_object(every, self.mib)
        return {name: [round(mib[name], 1) for mib in every if name in mib] for name in self.mib}


def with_peaks(rows: list[dict], peaks: dict[str, list[float]]) -> list[dict]:
    """Return the rows of the figures with the peaks of their contenders."""
    return [{**row, "peak_mib": peaks.get(row["contender"])} for row in rows]


def show_peaks(peaks: dict[str, list[float]]) -> None:
    """Print the table."""
    table = Table(title="peak memory of a process, with Python and torch in it, MiB")
    table.add_column("contender")
    for rank in range(max(map(len, peaks.values()), default=0)):
        table.add_column(f"rank {rank}", justify="right")
    for name, mib in peaks.items():
        table.add_row(name, *(f"{value:.0f}" for value in mib))
    Console(width=100).print(table)

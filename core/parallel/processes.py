"""The processes of a run as their starter sees them: how each ended, and how all are ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from core.errors import RankFailed
from core.parallel.interrupts import ignoring_interrupts

GRACE = 2.0
"""Seconds that processes get to end when they are asked to, before they are killed."""
LAST_WORDS = 4.0
"""Seconds that the rank that failed gets to say so and to end by itself."""


class Process(Protocol):
    """What ``subprocess.Popen`` can do, as far as it is needed here."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


def end_all(processes: Mapping[int, Process], failed: int | None = None) -> None:
    """End every process, by rank: asked first, then killed.

    Args:
        failed: the rank whose failure is the reason; it may end by itself first.
    """
    with ignoring_interrupts():
        if failed is not None and failed in processes:
            _wait_for([processes[failed]], LAST_WORDS)
        alive = [process for process in processes.values() if process.poll() is None]
        for process in alive:
            process.terminate()
        _wait_for(alive, GRACE)
        for process in alive:
            if process.poll() is None:
                process.kill()
        _wait_for(alive, GRACE)


def _wait_for(processes: Iterable[Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)


def without_repetition(failure: RankFailed, processes: Mapping[int, Process]) -> RankFailed:
    """Drop the other process's traceback from ``failure`` where that process has ended by itself and shown it."""
    process = processes.get(failure.rank)
    if process is not None and (process.poll() or 0) > 0:
        failure.__cause__ = None
    return failure


WHY_KILLED: dict[int, str] = {
    signal.SIGKILL: " (the system does that when memory runs out)",
    signal.SIGABRT: " (the libraries that exchange tensors do that when ranks make different calls)\n  hint: look for "
    "log(..., sync_dist=True), all_gather or another exchange that some ranks make and others do not",
}


def describe_exit(pid: int, code: int) -> str:
    """Return how a process ended, in words, with the signal's name."""
    if code >= 0:
        return f"process {pid} ended with exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"process {pid} was killed by {name}{WHY_KILLED.get(-code, '')}"

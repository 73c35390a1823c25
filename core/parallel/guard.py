"""Run one rank's part of a run so that its failure is told to the others, and theirs to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from torch import distributed as dist

from core.errors import RankFailed
from core.parallel.rendezvous import Rendezvous, current, has_current
from core.session import Ranks, end_if_orphaned
from core.wording import told

T = TypeVar("T")

ECHO_WAIT = 2.0
"""Seconds that a rank whose exchange broke waits to hear which rank's end broke it."""
STARTER_WAIT = 0.2
"""Seconds after its sockets are closed until the system counts a killed process as gone."""
STORE_WAIT = 5.0
"""Seconds that the store has for its answer; one that takes longer is out of reach."""


def guarded(run: Callable[[Ranks], T], rendezvous: Rendezvous) -> T:
    """Call ``run``; report what it raises, and raise in its place what another rank reported first.

    Raises:
        RankFailed: when another rank failed before this one; this rank's own error is then only an echo.
    """
    ranks = rendezvous.ranks
    rendezvous.begin_run()
    try:
        result = run(ranks)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        first = _report(error, rendezvous)
        if first.rank != ranks.global_rank:
            raise first  # noqa: B904 - its cause is the other rank's traceback
        raise
    rendezvous.end_run()
    return result


def guarded_child(run: Callable[[Ranks], T], rendezvous: Rendezvous) -> T:
    """As :func:`guarded`, in a process that another one watches: it says nothing about the failures of others.

    The rank that failed says so itself, and an echo from every other rank would bury its words.
    """
    try:
        return guarded(run, rendezvous)
    except (RankFailed, KeyboardInterrupt):
        raise SystemExit(1) from None


def report_failure(error: BaseException) -> None:
    """Tell the other ranks at once that this one failed; what it does about the error may take its time."""
    if has_current() and not isinstance(error, KeyboardInterrupt):
        _report(error, current())


def _report(error: BaseException, rendezvous: Rendezvous) -> RankFailed:
    """Return the run's first failure, which is this error unless another rank was faster.

    The store is asked beside this thread: when the network is gone, its client waits for an answer without end.
    """
    _end_with_starter(error)
    ranks = rendezvous.ranks
    answers: list[RankFailed] = []

    def ask() -> None:
        first = _other_failure(rendezvous, ECHO_WAIT if _is_exchange_error(error) else 0.0)
        if first is None:
            _name_rank(error, ranks)
            first = rendezvous.report(error)
        answers.append(first)

    asking = threading.Thread(target=ask, name="interlock-report", daemon=True)
    asking.start()
    asking.join(ECHO_WAIT + STORE_WAIT)
    if answers:
        return answers[0]
    _name_rank(error, ranks)
    return RankFailed(ranks.global_rank, ranks.world_size, told(error).splitlines()[0])


def _end_with_starter(error: BaseException) -> None:
    """End this process where the exchange broke because its starter was killed: nobody is left who could say more."""
    deadline = time.monotonic() + STARTER_WAIT if _is_exchange_error(error) else 0.0
    while True:
        end_if_orphaned()
        if time.monotonic() >= deadline:
            return
        time.sleep(0.02)


def _other_failure(rendezvous: Rendezvous, patience: float) -> RankFailed | None:
    deadline = time.monotonic() + patience
    while True:
        try:
            first = rendezvous.first_failure()
        except Exception:
            return None  # the store is gone, and with it everyone who could say
        if first is not None or time.monotonic() >= deadline:
            return first
        time.sleep(0.05)


def _is_exchange_error(error: BaseException) -> bool:
    """Tell whether the error comes from torch's exchanges, which fail as an echo of a peer's end."""
    words = ("gloo", "NCCL", "onnection closed", "onnection reset", "roken pipe")
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(word in told(error) for word in words)
    )


def _name_rank(error: BaseException, ranks: Ranks) -> None:
    """Write into the traceback which rank raised it; Python 3.10 has no notes and leaves it out."""
    note = f"raised on rank {ranks.global_rank} of {ranks.world_size}"
    if not hasattr(error, "add_note") or note in getattr(error, "__notes__", ()):
        return
    error.add_note(note)
    if _is_exchange_error(error):
        error.add_note("another rank did not answer, and said nothing: its process, its machine or the network is gone")

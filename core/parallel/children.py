"""Ranks that rank 0 starts by running the script again, and how they end.

Rank 0 is the process that the user started. Its children run the same script with the same arguments and
come to the same ``fit``; the variables that torchrun would set tell them who they are. One set of children
serves every run of the program.
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from core.errors import InterlockError, InvalidArgument, RankFailed
from core.parallel.command import script_arguments
from core.parallel.guard import guarded
from core.parallel.interrupts import InterruptWatch, ignoring_interrupts
from core.parallel.processes import GRACE, LAST_WORDS, describe_exit, end_all, without_repetition
from core.parallel.rendezvous import SAME_CALLS, Rendezvous, set_current
from core.parallel.stores import LOOPBACK, host_store, join_store
from core.session import OWN_PARENT, START_FOLDER, Ranks
from core.wording import told

T = TypeVar("T")

POLL = 0.2
"""Seconds between two looks at the children."""
LAST_RESORT = 2.0
"""Seconds after which rank 0 ends itself when it is stuck although the others were ended."""
EXIT_WAIT = 30.0
"""Seconds that the program waits at its end for children that are still at work."""


class Children:
    """The children of this program, watched from their start to their end."""

    def __init__(self, world_size: int, start_timeout: float) -> None:
        self.world_size = world_size
        self.ended_because: str | None = None
        store, port = host_store(start_timeout)
        self.rendezvous = set_current(Rendezvous(store, Ranks(0, 0, 0, world_size, world_size)))
        self._watch_store = join_store(LOOPBACK, port, start_timeout)  # a client serves one thread at a time
        self._interrupts = InterruptWatch()
        self._in_run = threading.Event()
        self._unfinished = False
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._watcher = threading.Thread(target=self._watch, name="interlock-child-watch", daemon=True)
        atexit.register(self._at_exit)
        self._watcher.start()
        command = [sys.executable, *script_arguments()]
        with ignoring_interrupts():
            for rank in range(1, world_size):
                self._processes[rank] = subprocess.Popen(command, env=self._environment(rank, port), cwd=START_FOLDER)

    def _environment(self, rank: int, port: int) -> dict[str, str]:
        size = str(self.world_size)
        return {
            **os.environ,
            OWN_PARENT: str(os.getpid()),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": size,
            "GROUP_RANK": "0",
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(port),
        }

    def run(self, run: Callable[[Ranks], T]) -> T:
        """Run rank 0's part here while the children run theirs.

        Raises:
            RankFailed: when a child failed first; the children are ended before it is raised.
        """
        self._runner, self._error_before = threading.get_ident(), sys.exc_info()[1]
        self._unfinished = True
        self._in_run.set()
        try:
            with self._interrupts.listening():
                result = guarded(run, self.rendezvous)
        except RankFailed as failure:
            self.end(str(failure), failure.rank)
            raise without_repetition(failure, self._processes)  # noqa: B904 - keeps or drops its own cause
        except BaseException as error:
            self.end(f"rank 0 failed: {told(error)}")
            raise
        finally:
            self._in_run.clear()
        self._unfinished = False
        return result

    def end(self, why: str, failed: int | None = None) -> None:
        """End every child; the rank ``failed`` may end by itself."""
        self.ended_because = self.ended_because or why
        end_all(self._processes, failed)

    def _watch(self) -> None:
        """Free rank 0 from waiting for a child that is lost, for a rank that failed, or in spite of Ctrl-C."""
        while self.ended_because is None:
            interrupted = self._interrupts.wait(POLL)
            if self._in_run.is_set() and (interrupted or self._find_failure()):
                self._free_rank_zero()
                return

    def _find_failure(self) -> RankFailed | None:
        """Return the run's failure; a child that ended before its part was done is one, and could not say so itself."""
        meeting, store = self.rendezvous, self._watch_store
        for rank, process in self._processes.items():
            code = process.poll()
            if code is not None and not meeting.has_finished(rank, store):
                how = describe_exit(process.pid, code)
                if not meeting.has_come(rank, store):
                    how += " before it came to this run of rank 0"
                    how += f"\n  hint: {SAME_CALLS}" if code == 0 else ""
                return meeting.post(RankFailed(rank, self.world_size, how), store)
        return meeting.first_failure(store)

    def _free_rank_zero(self) -> None:
        """Let rank 0 fail by itself; else end the others, whose sockets it waits on; else end it."""
        failure = self.rendezvous.first_failure(self._watch_store)
        if self._left_run(GRACE if failure is None else LAST_WORDS):
            return
        self.end(str(failure or "Ctrl-C"))
        if not self._left_run(LAST_RESORT) and not self._handles_error():
            print(f"{failure or 'Ctrl-C'}\nrank 0 does not react and is ended", file=sys.stderr, flush=True)
            os._exit(1)

    def _left_run(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._in_run.is_set() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self._in_run.is_set()

    def _handles_error(self) -> bool:
        """Tell whether rank 0 has its error already, and a callback takes its time with it."""
        current = sys._current_exceptions().get(self._runner)
        error = current[1] if isinstance(current, tuple) else current  # a tuple before Python 3.12
        return error is not None and error is not self._error_before

    def _at_exit(self) -> None:
        """Wait for children that still finish the script; a bad end of theirs is the program's bad end."""
        message = None
        if self._unfinished:
            self.end("rank 0 left its run")
        elif self.ended_because is None:
            self.rendezvous.leave()
            message = self._bad_end()
        self.ended_because = self.ended_because or "the program is over"
        self._watcher.join()  # a thread that still is in the store when the interpreter ends would abort it
        if message is not None:
            print(message, file=sys.stderr, flush=True)
            sys.stdout.flush()
            logging.shutdown()
            os._exit(1)  # an exit handler cannot change the status in any other way

    def _bad_end(self) -> str | None:
        """Wait until all children have ended; return what was wrong with it."""
        deadline = time.monotonic() + EXIT_WAIT
        while any(process.poll() is None for process in self._processes.values()):
            if time.monotonic() > deadline:
                self.end("rank 0 has ended")
                return f"children were still running {EXIT_WAIT:g} s after rank 0 had finished; they were ended"
            time.sleep(0.02)
        for rank, process in self._processes.items():
            if code := process.poll():
                return f"rank {rank} of {self.world_size} failed after the run: {describe_exit(process.pid, code)}"
        return None


_children: list[Children] = []


def children_for(world_size: int, start_timeout: float) -> Children:
    """Return the program's children, started at the first call.

    Raises:
        InvalidArgument: when an earlier run of this program started another number of processes.
        InterlockError: when they were ended because an earlier run failed.
    """
    if not _children:
        _children.append(Children(world_size, start_timeout))
    children = _children[-1]
    if children.ended_because is not None:
        raise InterlockError(
            f"the other processes of this program were ended when an earlier run failed: {children.ended_because}\n"
            "  hint: start the program again; a strategy that spawns its processes makes new ones for each run"
        )
    if children.world_size != world_size:
        raise InvalidArgument(
            f"this program runs as {children.world_size} processes since its first fit; "
            f"a run of {world_size} processes needs a program of its own"
        )
    return children


def has_children() -> bool:
    """Tell whether this program runs as several processes already."""
    return bool(_children)

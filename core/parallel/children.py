"""Ranks that rank 0 starts by running the script again, and how they end.

Rank 0 is the process that the user started. Its children run the same script with the same arguments and
come to the same ``fit``; the variables that torchrun would set tell them who they are. One set of children
serves every run of the program.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from core.errors import InvalidArgument, RankFailed
from core.parallel.guard import guarded
from core.parallel.rendezvous import LOOPBACK, Rendezvous, host_store, join_store, set_current
from core.session import OWN_PARENT, START_FOLDER, Ranks

T = TypeVar("T")

GRACE = 2.0
"""Seconds that processes get to end by themselves before they are ended."""
LAST_RESORT = 8.0
"""Seconds after which rank 0 ends itself when a failure elsewhere left it stuck in an exchange."""
EXIT_WAIT = 30.0
"""Seconds that the program waits at its end for children that are still at work."""


class Children:
    """The children of this program, watched from their start to their end."""

    def __init__(self, world_size: int, start_timeout: float) -> None:
        self.world_size = world_size
        store, port = host_store(start_timeout)
        self.rendezvous = set_current(Rendezvous(store, Ranks(0, 0, 0, world_size, world_size), own=True))
        self._watch_store = join_store(LOOPBACK, port, start_timeout)  # a waiting client serves one thread only
        self._in_run = threading.Event()
        self._ending = False
        self._lost: RankFailed | None = None
        command = [sys.executable, *script_arguments()]
        self._processes = {
            rank: subprocess.Popen(command, env=self._environment(rank, port), cwd=START_FOLDER)
            for rank in range(1, world_size)
        }
        atexit.register(self._at_exit)
        threading.Thread(target=self._watch, name="interlock-child-watch", daemon=True).start()

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
        with self._watched():
            try:
                return guarded(run, self.rendezvous)
            except BaseException as error:
                cause = None if isinstance(error, KeyboardInterrupt) else self._cause(error)
                self.end()
                if cause is not None:
                    raise cause from None
                raise

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        self._in_run.set()
        try:
            yield
        finally:
            self._in_run.clear()

    def _cause(self, error: BaseException) -> RankFailed | None:
        """Find out whether a child's end lies behind rank 0's error; a killed child reports nothing itself."""
        if isinstance(error, RankFailed):
            return self.rendezvous.first_failure() or error
        deadline = time.monotonic() + (GRACE if _is_exchange_error(error) else 0.0)
        while self._lost is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return self._lost

    def _watch(self) -> None:
        """Notice a child that ended badly, or a failure that a rank reported, and free rank 0 from waiting for it."""
        while not self._ending:
            time.sleep(0.1)
            self._lost = self._lost or self._find_lost()
            failed = self._lost is not None or self._reported()
            if failed and self._in_run.is_set():
                self._free_rank_zero()
                return

    def _find_lost(self) -> RankFailed | None:
        for rank, process in self._processes.items():
            code = process.poll()
            if self._ending or code is None or (code == 0 and not self._in_run.is_set()):
                continue
            reported = self._first_reported()
            if reported is not None and reported.rank == rank:
                return reported
            if reported is None or code < 0:
                return RankFailed(rank, self.world_size, describe_exit(process.pid, code))
        return None

    def _reported(self) -> bool:
        return self._first_reported() is not None

    def _first_reported(self) -> RankFailed | None:
        return Rendezvous(self._watch_store, self.rendezvous.ranks, own=True).first_failure()

    def _free_rank_zero(self) -> None:
        """Give rank 0 a moment to fail by itself; then end the others, whose sockets it waits on; then end it."""
        deadline = time.monotonic() + GRACE
        while self._in_run.is_set() and time.monotonic() < deadline:
            time.sleep(0.05)
        if not self._in_run.is_set():
            return
        self.end()
        deadline = time.monotonic() + LAST_RESORT
        while self._in_run.is_set() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._in_run.is_set():
            failure = self._lost or self._first_reported()
            print(f"{failure}\nrank 0 is stuck in an exchange with it; ending", file=sys.stderr, flush=True)
            os._exit(1)

    def end(self) -> None:
        """End every child: asked first, then killed."""
        self._ending = True
        alive = [process for process in self._processes.values() if process.poll() is None]
        for process in alive:
            process.terminate()
        deadline = time.monotonic() + GRACE
        for process in alive:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _at_exit(self) -> None:
        """Wait for children that still finish the script; a bad end of theirs is the program's bad end."""
        deadline = time.monotonic() + EXIT_WAIT
        while not self._ending and time.monotonic() < deadline:
            codes = {rank: process.poll() for rank, process in self._processes.items()}
            if all(code is not None for code in codes.values()):
                bad = {rank: code for rank, code in codes.items() if code}
                if bad:
                    rank, code = next(iter(bad.items()))
                    pid = self._processes[rank].pid
                    _exit_with(f"rank {rank} of {self.world_size} failed after the run: {describe_exit(pid, code)}")
                return
            time.sleep(0.05)
        if not self._ending:
            self.end()
            _exit_with(f"children were still running {EXIT_WAIT:g} s after rank 0 had finished; they were ended")


def _exit_with(message: str) -> None:
    """Say why and end with status 1: an exit handler cannot change the status in any other way."""
    print(message, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(1)


def _is_exchange_error(error: BaseException) -> bool:
    """Tell whether the error comes from torch's exchanges, which fail as an echo of a peer's end."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(word in text for word in ("gloo", "NCCL", "Connection", "peer"))


def describe_exit(pid: int, code: int) -> str:
    """Return how a process ended, in words, with the signal's name."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"process {pid} was killed by {name}"
    return f"process {pid} ended with exit status {code}" + (" before the run was over" if code == 0 else "")


def script_arguments() -> list[str]:
    """Return what follows the interpreter to run this program again: its options, ``-m``, script and arguments.

    The script's own path is written out in full, since the program may have changed its folder meanwhile.
    """
    arguments = list(sys.orig_argv[1:])
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path and sys.argv and sys.argv[0] in arguments:
        given = arguments.index(sys.argv[0])
        arguments[given] = os.path.abspath(os.path.join(START_FOLDER, path))
    return arguments


_children: list[Children] = []


def children_for(world_size: int, start_timeout: float) -> Children:
    """Return the program's children, started at the first call.

    Raises:
        InvalidArgument: when an earlier run of this program started another number of processes.
        RankFailed: when a child has ended badly since.
    """
    if _children and _children[-1]._ending:
        _children.clear()  # they were ended after a failure that the program caught
    if not _children:
        _children.append(Children(world_size, start_timeout))
    children = _children[-1]
    if children.world_size != world_size:
        raise InvalidArgument(
            f"this program runs as {children.world_size} processes since its first fit; "
            f"a run of {world_size} processes needs a program of its own"
        )
    return children

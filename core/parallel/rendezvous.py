"""Where the processes of a run meet: one store, named meeting points, and the first failure.

The store is torch's TCPStore. Self-started runs host it on the loopback address, on a port that is bound
before anyone is told about it, so that two runs on one machine never race for a port.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed import PrefixStore, Store

from core.errors import RankFailed, WaitTimeout
from core.parallel.networks import LOOPBACK_DEVICE
from core.session import Ranks
from core.wording import told

SAME_CALLS = "every rank has to make the same calls; look for one inside `if rank == 0` or `if trainer.is_global_zero`"
_POLL_SECONDS = (0.001, 0.05)


class RankTraceback(Exception):  # noqa: N818 - it is shown as the cause of a RankFailed, never raised
    """The traceback of another process, as text."""


class Rendezvous:
    """The meeting place of one process with its peers.

    Every rank counts its runs and meetings, and all count alike, since they run the same program.

    Args:
        store: shared by all ranks.
        ranks: which of them this process is.
        network: the network device between the ranks, None to leave it to the backend.

    :attr:`runs` counts the runs that have begun.
    """

    def __init__(self, store: Store, ranks: Ranks, network: str | None = LOOPBACK_DEVICE) -> None:
        self.store, self.ranks, self.network = store, ranks, network
        self.runs = self._meetings = 0

    def begin_run(self) -> None:
        """Start the next run: what an earlier one left in the store is forgotten."""
        self.runs += 1
        self._meetings = 0

    def end_run(self) -> None:
        """Tell the others that this rank's part of the run is done."""
        self.store.set(self._key("done", self.ranks.global_rank), "")

    def leave(self) -> None:
        """Tell ranks that still wait, now or later, that this process ends."""
        self.store.set(f"left/{self.ranks.global_rank}", "")

    def group_store(self) -> Store:
        """Return the part of the store for this run's process group."""
        return PrefixStore(self._key("group"), self.store)

    def meet(self, name: str, timeout: float) -> None:
        """Wait until all ranks have come to the meeting point ``name``.

        Raises:
            WaitTimeout: after ``timeout`` seconds, naming who did not come; or at once when a rank came to
                another meeting point instead or has ended its program, or when this rank itself has failed.
            RankFailed: as soon as another rank has reported a failure.
        """
        self._meetings += 1
        meeting = f"meeting{self._meetings}"
        self.store.set(self._key(meeting, self.ranks.global_rank), name)
        missing = self._wait_for(meeting, name, timeout)
        me, world_size = self.ranks.global_rank, self.ranks.world_size
        if missing:
            who = ", ".join(map(str, missing))
            raise _mismatch(f"rank {me} waited {timeout:g} s at {name!r} for rank {who} of {world_size}")
        places = {r: self.store.get(self._key(meeting, r)).decode() for r in range(world_size)}
        other = [f"rank {r} is at {place!r}" for r, place in places.items() if place != name]
        if other:
            raise _mismatch(f"rank {me} is at {name!r}, but {', '.join(other)}")

    def _wait_for(self, meeting: str, name: str, timeout: float) -> list[int]:
        """Poll until every rank's key is there; return the ranks that never came."""
        deadline = time.monotonic() + timeout
        missing = [r for r in range(self.ranks.world_size) if r != self.ranks.global_rank]
        pause, longest = _POLL_SECONDS
        while True:
            self._refuse_after_failure(name)
            gone = [r for r in missing if self.store.check([f"left/{r}"])]
            missing = [r for r in missing if not self.store.check([self._key(meeting, r)])]
            if not missing or time.monotonic() > deadline:
                return missing
            for rank in set(gone).intersection(missing):
                me = self.ranks.global_rank
                raise _mismatch(f"rank {me} is at {name!r}, but rank {rank} has come to the end of the program")
            time.sleep(pause)
            pause = min(pause * 2, longest)

    def _refuse_after_failure(self, name: str) -> None:
        failure = self.first_failure()
        if failure is not None and failure.rank == self.ranks.global_rank:
            raise WaitTimeout(f"rank {failure.rank} is at {name!r} after it failed, and no other rank will come")
        if failure is not None:
            raise failure

    def report(self, error: BaseException) -> RankFailed:
        """Tell the others that this rank failed, unless another did first; return the failure that came first."""
        summary = told(error).splitlines()[0]
        text = "".join(traceback.format_exception(error))
        failure = RankFailed(self.ranks.global_rank, self.ranks.world_size, summary, text)
        try:
            return self.post(failure)
        except Exception:
            return failure  # whoever hosted the store is gone: nobody is left to be told

    def post(self, failure: RankFailed, store: Store | None = None) -> RankFailed:
        """Make ``failure`` the run's failure, unless there is one; return the one that stands."""
        text = json.dumps([failure.rank, failure.what, failure.traceback_text])
        stands = (store or self.store).compare_set(self._key("failure"), "", text)
        return self._read_failure(stands)

    def first_failure(self, store: Store | None = None) -> RankFailed | None:
        """Return the failure that came first in this run, or None.

        Args:
            store: another client of the same store; one client serves one thread at a time.
        """
        store, key = store or self.store, self._key("failure")
        return self._read_failure(store.get(key)) if store.check([key]) else None

    def _read_failure(self, data: bytes) -> RankFailed:
        rank, what, text = json.loads(data)
        failure = RankFailed(rank, self.ranks.world_size, what, text)
        # shown before the failure itself; what this rank was doing when it heard of it is not shown
        failure.__cause__ = RankTraceback(f"rank {rank} of {failure.world_size}\n{text.rstrip()}") if text else None
        return failure

    def has_come(self, rank: int, store: Store) -> bool:
        """Tell whether ``rank`` has come to this run's first meeting point."""
        return store.check([self._key("meeting1", rank)])

    def has_finished(self, rank: int, store: Store) -> bool:
        """Tell whether ``rank`` has done its part of this run."""
        return store.check([self._key("done", rank)])

    def _key(self, name: str, rank: int | None = None) -> str:
        return f"run{self.runs}/{name}" + ("" if rank is None else f"/{rank}")


def _mismatch(fact: str) -> WaitTimeout:
    return WaitTimeout(f"{fact}\n  hint: {SAME_CALLS}")


_current: list[Rendezvous] = []


def current() -> Rendezvous:
    """Return the meeting place of this process; there is one from the launch of the first run on."""
    return _current[-1]


def has_current() -> bool:
    """Tell whether this process has a meeting place already."""
    return bool(_current)


def set_current(rendezvous: Rendezvous) -> Rendezvous:
    """Make ``rendezvous`` this process's meeting place."""
    _current[:] = [rendezvous]
    return rendezvous


@contextmanager
def using(rendezvous: Rendezvous) -> Iterator[None]:
    """Make ``rendezvous`` this process's meeting place inside."""
    before = list(_current)
    set_current(rendezvous)
    try:
        yield
    finally:
        _current[:] = before

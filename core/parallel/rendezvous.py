"""Where the processes of a run meet: one store, named meeting points, and the first failure.

The store is torch's TCPStore. Self-started runs host it on the loopback address, on a port that is bound
before anyone is told about it, so that two runs on one machine never race for a port.
"""

from __future__ import annotations

import json
import os
import socket
import time
import traceback
from collections.abc import Iterable
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore

from core.errors import RankFailed, WaitTimeout
from core.session import Ranks

LOOPBACK = "127.0.0.1"
_FIRST, _COUNT = "failure/first", "failure/count"
_POLL_SECONDS = (0.001, 0.05)


class Rendezvous:
    """The meeting place of one process with its peers.

    Args:
        store: shared by all ranks.
        ranks: which of them this process is.
        own: whether Interlock started the processes itself, all on this machine.
    """

    def __init__(self, store: Store, ranks: Ranks, own: bool) -> None:
        self.store, self.ranks, self.own = store, ranks, own
        self._groups = 0
        self._meetings = 0

    def next_group_store(self) -> Store:
        """Return a fresh part of the store for the next process group; every rank counts alike."""
        self._groups += 1
        return PrefixStore(f"group{self._groups}", self.store)

    def meet(self, name: str, timeout: float) -> None:
        """Wait until all ranks have come to the meeting point ``name``.

        Raises:
            WaitTimeout: after ``timeout`` seconds, naming who did not come; or at once when a rank came to
                another meeting point instead.
            RankFailed: as soon as another rank has reported a failure.
        """
        self._meetings += 1
        prefix = f"meeting{self._meetings}"
        self.store.set(f"{prefix}/{self.ranks.global_rank}", name)
        missing = self._wait_for(prefix, timeout)
        me = self.ranks.global_rank
        if missing:
            who = ", ".join(map(str, missing))
            raise WaitTimeout(
                f"rank {me} waited {timeout:g} s at {name!r} for rank {who} of {self.ranks.world_size}\n"
                f"  hint: {name!r} has to be reached by every rank; code inside `if rank == 0` must not call it"
            )
        places = {r: self.store.get(f"{prefix}/{r}").decode() for r in range(self.ranks.world_size)}
        other = {r: place for r, place in places.items() if place != name}
        if other:
            elsewhere = ", ".join(f"rank {r} is at {place!r}" for r, place in other.items())
            raise WaitTimeout(
                f"rank {me} is at {name!r}, but {elsewhere}\n"
                f"  hint: every rank has to make the same calls; look for one inside `if rank == 0`"
            )

    def _wait_for(self, prefix: str, timeout: float) -> list[int]:
        """Poll until every rank's key is there; return the ranks that never came."""
        deadline = time.monotonic() + timeout
        missing = [r for r in range(self.ranks.world_size) if r != self.ranks.global_rank]
        pause, longest = _POLL_SECONDS
        while True:
            missing = [r for r in missing if not self.store.check([f"{prefix}/{r}"])]
            if not missing or time.monotonic() > deadline:
                return missing
            failure = self.first_failure()
            if failure is not None:
                raise failure
            time.sleep(pause)
            pause = min(pause * 2, longest)

    def report(self, error: BaseException) -> RankFailed | None:
        """Tell the others that this rank failed; return the failure that came first, if another rank's did."""
        text = "".join(traceback.format_exception(error))
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        try:
            if self.store.add(_COUNT, 1) == 1:
                failure = {"rank": self.ranks.global_rank, "what": what, "traceback": text}
                self.store.set(_FIRST, json.dumps(failure))
                return None
            return self.first_failure()
        except Exception:
            return None  # whoever hosted the store is gone: nobody is left to be told

    def first_failure(self) -> RankFailed | None:
        """Return what the first failing rank reported, or None."""
        if not self.store.check([_FIRST]):
            return None
        failure = json.loads(self.store.get(_FIRST))
        return RankFailed(failure["rank"], self.ranks.world_size, failure["what"], failure["traceback"])


def host_store(timeout: float) -> tuple[TCPStore, int]:
    """Open a store on this machine's loopback address; return it and its port."""
    listener = socket.socket()
    listener.bind((LOOPBACK, 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    store = TCPStore(
        LOOPBACK,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout),
        master_listen_fd=listener.detach(),
    )
    return store, port


def join_store(host: str, port: int, timeout: float, *, master: bool = False) -> TCPStore:
    """Open the store that another process hosts; with ``master``, host it at this address."""
    return TCPStore(host, port, is_master=master, wait_for_workers=False, timeout=timedelta(seconds=timeout))


def join_external(ranks: Ranks, timeout: float) -> Rendezvous:
    """Meet the peers that a launcher such as torchrun started, at the address that it put in the environment."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    agent_hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    store = join_store(host, port, timeout, master=ranks.global_rank == 0 and not agent_hosts)
    # an elastic launcher keeps its store over restarts: the keys of a former attempt must not be met again
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Rendezvous(PrefixStore(f"interlock/attempt{attempt}", store), ranks, own=False)


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


def describe_ranks(ranks: Iterable[int]) -> str:
    """Return "rank 1" or "ranks 1, 2"."""
    numbers = [str(rank) for rank in ranks]
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"

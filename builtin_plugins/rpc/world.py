"""The RPC world of this program: all ranks enter it in their first run and leave it together at the end.

One world serves every run of the program: torch cannot use remote references in a second one.
"""

from __future__ import annotations

import atexit
import contextlib
import re
import sys
import time
import warnings
from collections.abc import Iterator, Sequence

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, rpc

from core.errors import InterlockError, InvalidArgument
from core.parallel.networks import sockets_over
from core.parallel.rendezvous import Rendezvous

SCHEME = "interlock"
LEAVE_WAIT = 20.0
"""Seconds that ranks which run the loop wait at the program's end for those that serve."""
_NAME = re.compile(r"[A-Za-z0-9_:\-]{1,127}\Z")
_NETWORK_VARIABLES = ("TP_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def default_names(world_size: int) -> tuple[str, ...]:
    """Return ``worker0, worker1, ...``: one name for each rank, whatever it does."""
    return tuple(f"worker{rank}" for rank in range(world_size))


def check_names(names: Sequence[str], world_size: int) -> tuple[str, ...]:
    """Return ``names`` as a tuple.

    Raises:
        InvalidArgument: for a wrong number, a repetition, or characters that RPC does not take.
    """
    wrong = [name for name in names if not isinstance(name, str) or not _NAME.match(name)]
    if wrong:
        raise InvalidArgument(f"worker name {wrong[0]!r} must be letters, digits, '_', ':' or '-', at most 127")
    if len(set(names)) < len(names):
        raise InvalidArgument(f"worker names must differ, but they are {list(names)}")
    if len(names) != world_size:
        raise InvalidArgument(f"{len(names)} worker names are given for {world_size} ranks")
    return tuple(names)


class World:
    """The RPC world as this process sees it.

    Args:
        rendezvous: where all ranks meet; all of them enter now.
        names: one for each rank.
        mains: how many ranks run the loop.
        threads: how many requests each rank answers at the same time.
        timeout: seconds that a request may take.
    """

    def __init__(
        self, rendezvous: Rendezvous, names: tuple[str, ...], mains: int, threads: int, timeout: float
    ) -> None:
        self.names, self.mains, self.threads, self.timeout = names, mains, threads, timeout
        self._store: Store = PrefixStore("rpc", rendezvous.store)
        self._rank, self._network = rendezvous.ranks.global_rank, rendezvous.network
        self.failed = False
        self._runs = 0
        self._enter(rendezvous.store)

    def _enter(self, shared: Store) -> None:
        _entrances[:] = [(PrefixStore("rpc/agents", shared), self._rank, len(self.names))]
        options = rpc.TensorPipeRpcBackendOptions(
            init_method=f"{SCHEME}://", rpc_timeout=self.timeout, num_worker_threads=self.threads
        )
        before = shared.timeout  # type: ignore[attr-defined]  # init_rpc sets it to that of requests
        with sockets_over(self._network, *_NETWORK_VARIABLES), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about its own use of its own group
            rpc.init_rpc(  # type: ignore[no-untyped-call]
                self.names[self._rank], rank=self._rank, world_size=len(self.names), rpc_backend_options=options
            )
        shared.set_timeout(before)
        atexit.register(self.leave)  # an agent that is still there when the interpreter ends aborts it

    def next_run(self) -> int:
        """Return the number of the next run; every rank counts alike."""
        self._runs += 1
        return self._runs

    def leave(self) -> None:
        """Leave when all do, or alone after a failure; called at the end of the program."""
        missing = [] if self.failed else self._wait_for_all()
        if missing:
            print(
                f"{self.names[self._rank]} leaves the RPC world without {', '.join(missing)}, "
                "which did not come to the end of the program in time",
                file=sys.stderr,
                flush=True,
            )
        with contextlib.suppress(Exception):  # what is left of the world after a failure may say anything
            rpc.shutdown(graceful=not missing and not self.failed, timeout=LEAVE_WAIT)

    def _wait_for_all(self) -> list[str]:
        """Return the names of those that did not come; who serves waits as long as a request may take."""
        patience = LEAVE_WAIT if self._rank < self.mains else self.timeout
        deadline = time.monotonic() + patience
        missing = list(range(len(self.names)))
        try:
            self._store.set(f"over/{self._rank}", "")
            while missing and time.monotonic() < deadline:
                missing = [rank for rank in missing if not self._store.check([f"over/{rank}"])]
                time.sleep(0.01 if missing else 0)
        except Exception:  # whoever hosted the store is gone
            missing = missing or [0]
        return [self.names[rank] for rank in missing]


_world: list[World] = []
_entrances: list[tuple[Store, int, int]] = []


def enter(rendezvous: Rendezvous, names: tuple[str, ...], mains: int, threads: int, timeout: float) -> World:
    """Return the program's RPC world, entered at the first call, which all ranks make.

    Raises:
        InvalidArgument: when an earlier run of this program entered another one.
        InterlockError: when it broke because an earlier run failed.
    """
    if not _world:
        _world.append(World(rendezvous, names, mains, threads, timeout))
    world = _world[-1]
    if world.failed:
        raise InterlockError(
            "the RPC world of this program broke when an earlier run failed\n  hint: start the program again"
        )
    world.mains = mains
    if world.names != names or world.threads < threads:
        raise InvalidArgument(
            f"this program is an RPC world of {', '.join(world.names)} with {world.threads} threads each since its "
            f"first run; a run with {', '.join(names)} and {threads} threads needs a program of its own"
        )
    return world


def abandon() -> None:
    """Let nobody use the program's RPC world after a failure; a world of one stays whole.

    It is left at the program's end: who failed has to say so first, and leaving may take its time.
    """
    if _world and len(_world[-1].names) > 1:
        _world[-1].failed = True


def _meet_by_store(url: str, **_: object) -> Iterator[tuple[Store, int, int]]:
    yield _entrances[-1]


dist.register_rendezvous_handler(SCHEME, _meet_by_store)  # type: ignore[no-untyped-call]

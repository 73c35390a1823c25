"""Ranks started with torch.multiprocessing; their parent takes no part in the run and brings its result home.

A spawned process starts afresh and imports the script; a forked one is a copy of this one, so that everything made
at a prompt or in a notebook is there already.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

import torch
from torch import multiprocessing

from core.errors import InterlockError, InvalidArgument, RankFailed
from core.parallel.guard import guarded_child
from core.parallel.interrupts import ignoring_interrupts
from core.parallel.processes import describe_exit, end_all, without_repetition
from core.parallel.rendezvous import Rendezvous, set_current
from core.parallel.stores import LOOPBACK, host_store, join_store
from core.seed import get_rng_state, set_rng_state
from core.session import Ranks, end_with_parent, imports_script

T = TypeVar("T")


class Spawned:
    """One new process and the pipe to it; a forked one gets ``inherited``, what it is to run, by being forked."""

    def __init__(
        self, method: str, rank: int, world_size: int, port: int, start_timeout: float, inherited: object
    ) -> None:
        context: Any = multiprocessing.get_context(method)
        self.connection, far = context.Pipe()
        arguments = (far, Ranks(rank, rank, 0, world_size, world_size), port, start_timeout, inherited)
        self._process: BaseProcess = context.Process(target=_child, name=f"rank {rank} of {world_size}", args=arguments)
        self._process.start()
        far.close()
        self.sentinel = self._process.sentinel

    @property
    def pid(self) -> int:
        """The process's number."""
        return cast(int, self._process.pid)

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self._process.exitcode

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it."""
        self._process.kill()


def run_spawned(run: Callable[[Ranks], T], world_size: int, start_timeout: float, method: str = "spawn") -> T:
    """Run ``run`` in ``world_size`` new processes and return what it returned on rank 0.

    Raises:
        InvalidArgument: when ``run`` cannot be pickled, with what pickle said, or when this process cannot be forked.
        RankFailed: when a process raised, was killed, or never started.
    """
    _refuse_while_imported()
    if method == "fork":
        _refuse_fork()
    payload = _pickled((run, get_rng_state())) if method == "spawn" else b""
    inherited = run if method == "fork" else None
    store, port = host_store(start_timeout)
    rendezvous = Rendezvous(store, Ranks(0, 0, 0, world_size, world_size))
    rendezvous.begin_run()
    processes: dict[int, Spawned] = {}

    def end(failed: int | None = None) -> None:
        end_all(processes, failed)

    atexit.register(end)  # should a second Ctrl-C come between the lines below
    try:
        with ignoring_interrupts():
            for rank in range(world_size):
                processes[rank] = Spawned(method, rank, world_size, port, start_timeout, inherited)
        # a pipe holds little, so that writing waits for a process that still starts
        if payload:
            threading.Thread(target=_send, args=(payload, processes), name="interlock-send", daemon=True).start()
        return cast(T, pickle.loads(_result(processes, rendezvous)))
    except RankFailed as failure:
        end(failure.rank)
        raise without_repetition(failure, processes)  # noqa: B904 - keeps or drops its own cause
    finally:
        end()
        atexit.unregister(end)


def _refuse_while_imported() -> None:
    if imports_script():
        raise InterlockError(
            "this script starts a run while it is imported, and every spawned process imports it\n"
            "  hint: put the code that starts the run under `if __name__ == '__main__':`"
        )


def _refuse_fork() -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise InvalidArgument(
            "this process has opened a GPU, and a copy of it could not use one\n"
            "  hint: restart the notebook or prompt, and let nothing touch a GPU before fit; or run a script"
        )


def _pickled(value: object) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise InvalidArgument(
            f"a spawned process needs module, loaders and callbacks that can be pickled: {error}\n"
            "  hint: define classes and functions at the top of a module, or take a strategy that runs the script again"
        ) from error


def _send(payload: bytes, processes: Mapping[int, Spawned]) -> None:
    for process in processes.values():
        with contextlib.suppress(OSError):  # it has ended; its exit status says more
            process.connection.send_bytes(payload)


def _result(processes: Mapping[int, Spawned], rendezvous: Rendezvous) -> bytes:
    """Wait until every process has ended, and return what rank 0 sent.

    Raises:
        RankFailed: as soon as one has ended badly.
    """
    result = b""
    running = dict(processes)
    waiting_for_result: list[Any] = [processes[0].connection]
    while running:
        ready = wait([*waiting_for_result, *(process.sentinel for process in running.values())])
        if waiting_for_result and waiting_for_result[0] in ready:
            with contextlib.suppress(EOFError, OSError):  # it ended without one
                result = processes[0].connection.recv_bytes()
            waiting_for_result.clear()
        for rank, process in list(running.items()):
            code = process.poll()
            if code is not None:
                del running[rank]
            if code or (code == 0 and not rendezvous.has_finished(rank, rendezvous.store)):
                failure = RankFailed(rank, len(processes), describe_exit(process.pid, code))
                raise rendezvous.post(failure)
    return result


def _child(
    connection: Connection, ranks: Ranks, port: int, start_timeout: float, inherited: Callable[[Ranks], object] | None
) -> None:
    """One new process; a function of an ordinary module, since a spawned one imports it by name."""
    end_with_parent(os.getppid())
    if inherited is not None:
        torch.set_num_threads(1)  # OpenMP's threads are not copied, and work shared with them would wait for ever
    rendezvous = set_current(Rendezvous(join_store(LOOPBACK, port, start_timeout), ranks))

    def work(ranks: Ranks) -> bytes:
        if inherited is not None:
            return pickle.dumps(inherited(ranks))
        # own copies: tensors that travel as multiprocessing's arguments would be one memory for all ranks
        run, random_state = pickle.loads(connection.recv_bytes())
        set_rng_state(random_state)
        return pickle.dumps(run(ranks))

    returned = guarded_child(work, rendezvous)
    if ranks.global_rank == 0:
        connection.send_bytes(returned)

"""Ranks started with torch.multiprocessing; their parent takes no part in the run and brings its result home."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import multiprocessing

from core.errors import InvalidArgument, RankFailed
from core.parallel.children import GRACE
from core.parallel.guard import guarded
from core.parallel.rendezvous import LOOPBACK, Rendezvous, host_store, join_store, set_current
from core.seed import get_rng_state, set_rng_state
from core.session import Ranks

T = TypeVar("T")


def run_spawned(run: Callable[[Ranks], T], world_size: int, start_timeout: float) -> T:
    """Run ``run`` in ``world_size`` new processes and return what it returned on rank 0.

    Raises:
        InvalidArgument: when ``run`` cannot be pickled, with what torch.multiprocessing said.
        RankFailed: when a process raised, was killed, or never started.
    """
    _check_picklable(run)
    store, port = host_store(start_timeout)
    watcher = Rendezvous(store, Ranks(0, 0, 0, world_size, world_size), own=True)
    with tempfile.TemporaryDirectory(prefix="interlock-") as folder:
        result = Path(folder, "result.pt")
        arguments = (run, world_size, port, start_timeout, str(result), get_rng_state())
        context = multiprocessing.start_processes(  # type: ignore[no-untyped-call]
            _child, args=arguments, nprocs=world_size, join=False, start_method="spawn"
        )
        try:
            while not context.join(timeout=0.5, grace_period=GRACE):
                pass
        except multiprocessing.ProcessExitedException as error:
            first = watcher.first_failure()
            what = str(error) if error.signal_name or first is None else first.what
            raise (
                first if first and not error.signal_name else RankFailed(error.error_index, world_size, what)
            ) from None
        except multiprocessing.ProcessRaisedException as error:
            raise watcher.first_failure() or RankFailed(error.error_index, world_size, str(error)) from None
        except BaseException:
            _end(context)
            raise
        # our own file, written by our own child a moment ago
        return torch.load(result, weights_only=False)  # type: ignore[no-any-return]


def _check_picklable(run: object) -> None:
    try:
        pickle.dumps(run)
    except Exception as error:
        raise InvalidArgument(
            f"a spawned process needs module, loaders and callbacks that can be pickled: {error}\n"
            "  hint: define classes and functions at the top of a module, or take a strategy that runs the script again"
        ) from error


def _end(context: Any) -> None:
    for process in context.processes:
        if process.is_alive():
            process.terminate()
    for process in context.processes:
        process.join(GRACE)
        if process.is_alive():
            process.kill()
            process.join()


def _child(
    rank: int,
    run: Callable[[Ranks], object],
    world_size: int,
    port: int,
    start_timeout: float,
    result: str,
    rng: dict[str, Any],
) -> None:
    """One spawned process; a function of an ordinary module, since the child imports it by name."""
    ranks = Ranks(rank, rank, 0, world_size, world_size)
    rendezvous = set_current(Rendezvous(join_store(LOOPBACK, port, start_timeout), ranks, own=True))
    set_rng_state(rng)
    returned = guarded(run, rendezvous)
    if rank == 0:
        torch.save(returned, result)

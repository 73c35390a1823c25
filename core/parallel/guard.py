"""Run one rank's part of a run so that its failure is told to the others, and theirs to it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from core.errors import RankFailed
from core.parallel.rendezvous import Rendezvous
from core.session import Ranks

T = TypeVar("T")


def guarded(run: Callable[[Ranks], T], rendezvous: Rendezvous) -> T:
    """Call ``run``; report what it raises, and raise in its place what another rank reported first.

    Raises:
        RankFailed: when another rank failed before this one; this rank's own error is then only an echo.
    """
    ranks = rendezvous.ranks
    try:
        return run(ranks)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        first = rendezvous.report(error)
        if first is not None and first.rank != ranks.global_rank:
            raise RankFailed(first.rank, ranks.world_size, first.what) from None
        name_rank(error, ranks)
        raise


def name_rank(error: BaseException, ranks: Ranks) -> None:
    """Write into the traceback which rank raised it; Python 3.10 has no notes and leaves it out."""
    if hasattr(error, "add_note"):
        error.add_note(f"raised on rank {ranks.global_rank} of {ranks.world_size}")


def end_with_parent(parent: int) -> None:
    """End this process as soon as process ``parent`` is gone, so that no rank is left over."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)  # the main thread may sit in an exchange with a rank that is gone

    threading.Thread(target=watch, name="interlock-parent-watch", daemon=True).start()

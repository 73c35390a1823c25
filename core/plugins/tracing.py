"""``INTERLOCK_TRACE=1``: print every hook call, who answers it, and how long it takes."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pluggy

TRACE_VARIABLE = "INTERLOCK_TRACE"
"""Set to anything but 0, it makes each process of a run print its hook calls to standard error."""


def is_wanted() -> bool:
    """Tell whether the environment asks for a trace."""
    return os.environ.get(TRACE_VARIABLE, "0") not in ("", "0")


class Tracer:
    """Prints one line for each hook call of one run in this process; calls inside a call are printed before it."""

    def __init__(self) -> None:
        self._depth = 0

    def traced(
        self, hook: str, implementations: Sequence[pluggy.HookImpl], function: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return ``function``, which answers ``hook`` through these implementations, printing a line at each call."""
        *wrappers, owner = reversed(implementations)
        names = " > ".join(impl.plugin_name for impl in (*wrappers, owner))
        idle = not wrappers and getattr(owner.function, "does_nothing", False)
        own = _Stopwatch(owner) if wrappers else None

        def call(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            outcome = "raised "
            try:
                value = function(*args, **kwargs)
                outcome = ""
                return value
            finally:
                spent = time.perf_counter() - start
                self._depth -= 1
                parts = [f"{outcome}{spent * 1e6:.1f} us"]
                if own is not None:
                    parts.append(f"{owner.plugin_name} alone {own.take() * 1e6:.1f} us")
                if idle:
                    parts.append("does nothing")
                self._print(hook, names, ", ".join(parts), owner.plugin)

        return call

    def _print(self, hook: str, names: str, result: str, plugin: Any) -> None:
        ranks = getattr(plugin, "ranks", None)  # not there before the processes of the run have begun
        who = f"rank {ranks.global_rank}: " if ranks is not None and ranks.world_size > 1 else ""
        # in one piece, so that the lines of several processes do not mix
        sys.stderr.write(f"interlock: {who}{'  ' * self._depth}{hook} ({names}) {result}\n")


class _Stopwatch:
    """Times one implementation among those that pluggy calls for a hook."""

    def __init__(self, implementation: pluggy.HookImpl) -> None:
        self._function, self._spent = implementation.function, 0.0
        # pluggy reads the argument names once, when it registers; what it calls may be replaced after that
        implementation.function = self._timed()  # type: ignore[misc]

    def _timed(self) -> Callable[..., Any]:
        @functools.wraps(self._function)
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return self._function(*args)
            finally:
                self._spent += time.perf_counter() - start

        return timed

    def take(self) -> float:
        """Return the seconds since the last call of this method."""
        spent, self._spent = self._spent, 0.0
        return spent

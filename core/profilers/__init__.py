"""Profilers: what a run spends its time on."""

from core.errors import InvalidArgument, WrongType
from core.profilers.base import Profiler
from core.profilers.pytorch import PyTorchProfiler
from core.profilers.simple import SimpleProfiler

__all__ = ["Profiler", "PyTorchProfiler", "SimpleProfiler", "make_profiler"]

NAMED: dict[str, type[Profiler]] = {"simple": SimpleProfiler, "pytorch": PyTorchProfiler}


def make_profiler(given: str | Profiler | None) -> Profiler:
    """Return the profiler that ``Trainer(profiler=...)`` asks for; one that measures nothing for None.

    Raises:
        InvalidArgument: for a name that is none's.
    """
    if given is None:
        return Profiler()
    if isinstance(given, str):
        if given not in NAMED:
            raise InvalidArgument(f"profiler={given!r} must be one of {', '.join(map(repr, NAMED))}, or a Profiler")
        return NAMED[given]()
    if not isinstance(given, Profiler):
        raise WrongType(f"profiler must be a Profiler, a name or None, not {type(given).__name__} {given!r}")
    return given

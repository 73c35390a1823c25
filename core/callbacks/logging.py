"""Let callbacks log as the module does.

A callback holds nothing of the run, since it may travel to other processes: what runs in this one is kept here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from core.errors import InterlockError

if TYPE_CHECKING:
    from core.trainer import Trainer

_running: list[Trainer] = []


@contextmanager
def logging_of(trainer: Trainer) -> Iterator[None]:
    """Let callbacks log into the run of ``trainer`` inside."""
    _running.append(trainer)
    try:
        yield
    finally:
        _running.remove(trainer)


def log(name: str, value: Any, *how: Any, **named: Any) -> None:
    """Log one number with the arguments of :meth:`core.module.Module.log`.

    Raises:
        InterlockError: outside a run.
    """
    from core.module import Module  # modules know callbacks

    if not _running:
        raise InterlockError(f"log({name!r}) was called outside a run")
    speaker: Any = SimpleNamespace(_trainer=_running[-1])
    Module.log(speaker, name, value, *how, **named)


def log_dict(dictionary: Mapping[str, Any], *how: Any, **named: Any) -> None:
    """Log several numbers, each as :func:`log` does."""
    for name, value in dictionary.items():
        log(name, value, *how, **named)


def let_log(callbacks: Sequence[Any]) -> None:
    """Give the methods to callbacks of a class that names them only, as another framework's does."""
    for callback in callbacks:
        for function in (log, log_dict):
            if not hasattr(callback, function.__name__):
                vars(callback)[function.__name__] = function

"""Ctrl-C in runs of several processes: noticed while the main thread waits, and not in the way of ending."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import threading
from collections.abc import Iterator


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C inside; processes that are started inside ignore it for good, as their starter ends them."""
    before = signal.getsignal(signal.SIGINT)
    if not _in_main_thread() or before is None:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class InterruptWatch:
    """Tells another thread of Ctrl-C: the main thread cannot notice it while it waits in an exchange."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        for end in (self._read, self._write):
            end.setblocking(False)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while inside."""
        if not _in_main_thread():
            yield
            return
        before = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; return whether Ctrl-C came and nobody but Python's own handler takes care of it."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        came = bool(ready) and signal.SIGINT in self._read.recv(4096)
        return came and signal.getsignal(signal.SIGINT) is signal.default_int_handler

"""Let the requests for one part of the model through one at a time, and numbered ones in their order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import InterlockError, WaitTimeout


class TurnLostError(InterlockError):
    """A request waited behind one that has failed; the failure is that one's."""


class Turns:
    """Micro-batches come over the network in any order; random numbers and running statistics need them in theirs."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._busy = self._broken = False
        self._next = 0

    @contextmanager
    def turn(self, number: int | None, timeout: float) -> Iterator[None]:
        """Wait for the turn, and give it on afterwards.

        Args:
            number: counted from 0; None is let in whenever nobody else is.
            timeout: seconds to wait.

        Raises:
            WaitTimeout: when the turn does not come.
            TurnLostError: when a request before has failed.
        """
        with self._condition:

            def ready() -> bool:
                return self._broken or (not self._busy and number in (None, self._next))

            if not self._condition.wait_for(ready, timeout):
                raise WaitTimeout(
                    f"micro-batch {number} waited {timeout:g} s for number {self._next} to come before it"
                )
            if self._broken:
                raise TurnLostError("a request before this one has failed")
            self._busy = True
        yield  # after an error the turn is kept, so that nobody else speaks before it is told
        with self._condition:
            self._busy = False
            self._next += number is not None
            self._condition.notify_all()

    def break_off(self) -> None:
        """Let nobody wait any longer."""
        with self._condition:
            self._broken = True
            self._condition.notify_all()

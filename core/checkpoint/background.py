"""Write checkpoints beside the training: one at a time, in order, none lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from core.checkpoint.io import to_plain, write_checkpoint
from core.data.nested import detach_to_host
from core.errors import CheckpointError

WAIT = 600.0
"""Seconds that the end of a run waits for a file that is still being written."""


class BackgroundWriter:
    """Takes a copy of a checkpoint and writes it in a thread.

    A new one waits for the last: so the files appear in their order, and at most one copy is held. The file at the
    final name is the old one or the new one, whole, whenever the program ends.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._after: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._error: CheckpointError | None = None

    def write(self, checkpoint: dict[str, Any], path: str) -> None:
        """Copy ``checkpoint`` to host memory and write it to ``path`` beside the training.

        Raises:
            CheckpointError: when the one before could not be written, or this one holds what cannot be.
        """
        self.finish()
        copied = detach_to_host(to_plain(checkpoint))
        self._thread = threading.Thread(target=self._work, args=(copied, path), name="interlock-checkpoint")
        self._thread.start()

    def afterwards(self, action: Callable[[], None]) -> None:
        """Call ``action`` when the file that is being written is there; at once when none is."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                self._after.append(action)
                return
        action()

    def _work(self, checkpoint: dict[str, Any], path: str) -> None:
        try:
            write_checkpoint(checkpoint, path)
        except CheckpointError as error:
            self._error = error  # what was to follow, such as removing an older file, is left undone
            return
        with self._lock:
            actions, self._after = self._after, []
        for action in actions:
            action()

    def finish(self) -> None:
        """Wait for the file that is being written, and do what was to follow.

        Raises:
            CheckpointError: when it could not be written, or takes longer than :data:`WAIT` seconds.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(WAIT)
            if thread.is_alive():
                raise CheckpointError(f"a checkpoint was not written within {WAIT:g} s; is the disk still there?")
        actions, self._after = self._after, []
        error, self._error = self._error, None
        if error is not None:
            raise error
        for action in actions:  # they came when the thread was about to end
            action()

"""Jobs that a scheduler warns before it ends them: save between two steps, go back into the queue, go on from there.

A scheduler that does so tells its environment plugin the command to queue a job again. The signal only sets a flag;
all ranks look at it together after an optimizer step, so that the checkpoint is whole. Its name holds the job and
which fit of the program it was: another job in the same folder, and another fit of this one, do not go on from it.
"""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from core.environments import detect_environment
from core.errors import InterlockError

if TYPE_CHECKING:
    from core.loops.run import Run

PATTERN = "requeued_job{}_fit{}_{}.ckpt"
FITS = itertools.count(1)
"""Numbers the fits of this program: a job that runs again runs the same ones in the same order."""
TRIES, SECONDS = 3, 30.0
"""How often the scheduler is asked to queue the job again, and how long it may take each time."""


class Preemption:
    """Listens for the scheduler's warning while a fit runs.

    A handler that the user's script has set is kept, and then nothing is listened for.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.command = detect_environment().requeue
        self.warned = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGUSR1 for a warning inside."""
        main = threading.current_thread() is threading.main_thread()
        if not self.command or not main or signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGUSR1, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.warned = True

    def save_and_requeue(self) -> None:
        """Write the checkpoint that the queued job goes on from, and queue it; every rank calls it.

        Raises:
            InterlockError: on rank 0, when the scheduler does not take the job back.
        """
        trainer = self._run.trainer
        path = str(trainer.broadcast(str(next_path(trainer.default_root_dir, trainer.fit_number))))
        trainer.save_checkpoint(path)
        if self._run.writer is not None:
            self._run.writer.finish()
        if trainer.is_global_zero:
            queue_again(self.command)
            print(f"warned by the scheduler: saved {path} and queued the job again", flush=True)
        self._run.hooks.barrier("the job is queued again", None)


def queue_again(command: tuple[str, ...]) -> None:
    """Run the scheduler's command, a few times if it fails.

    Raises:
        InterlockError: with what the command said.
    """
    said = ""
    for _ in range(TRIES):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        else:
            if done.returncode == 0:
                return
            said = done.stderr.strip() or f"exit status {done.returncode}"
        time.sleep(1)
    raise InterlockError(f"{' '.join(command)!r} failed {TRIES} times: {said}")


def numbered(folder: str, fit: int) -> dict[int, Path]:
    """Return the checkpoints in ``folder`` of earlier warnings in this job's fit number ``fit``, by their numbers."""
    pattern = re.compile(re.escape(_name(fit, "#")).replace(r"\#", r"(\d+)"))
    matches = {path: pattern.fullmatch(path.name) for path in Path(folder).glob("requeued_*.ckpt")}
    return {int(match[1]): path for path, match in matches.items() if match}


def next_path(folder: str, fit: int) -> Path:
    """Return the path for the checkpoint of the next warning."""
    return Path(folder, _name(fit, max(numbered(folder, fit), default=0) + 1))


def _name(fit: int, number: object) -> str:
    job = re.sub(r"[^\w.-]", "-", detect_environment().job)  # a scheduler may number parts of a job with other signs
    return PATTERN.format(job, fit, number)


def path_to_go_on_from(folder: str, fit: int) -> str | None:
    """Return the newest checkpoint of a warning in this fit, in a job that was queued again; None at a first start."""
    if not detect_environment().requeue:
        return None
    found = numbered(folder, fit)
    return str(found[max(found)]) if found else None

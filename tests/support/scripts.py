"""Run scripts as real processes, and see how they end and what they leave.

Every process of a script inherits a mark in its environment. By it all of them are found, also those that nobody
waits for any more, and each that is left is ended by its own number.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
LIMIT = 60.0
"""Seconds that a script may take in all: one that hangs has failed."""
SOON = 10.0
"""Seconds within which everything is over after something went wrong."""


def busy() -> float:
    """Return by how much this machine has more to do than it has cores; the limits above are for one that is free."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@dataclass
class Ended:
    """How a script ended."""

    folder: Path
    status: int | None
    """The exit status of the process that was started; negative for a signal, None when it had to be killed."""
    out: str
    err: str
    left: list[int]
    """Processes that were still there ``SOON`` seconds after the first had ended."""
    at: float
    """When the last process was gone."""

    def soon_after(self, name: str, besides: float = 0.0) -> bool:
        """Tell whether everything was over soon after the note ``name``, ``besides`` a wait that was asked for."""
        return self.seconds_after(name) < (SOON + besides) * busy()

    def seconds_after(self, name: str) -> float:
        """Return how long after the note ``name`` everything was over."""
        return self.at - float((self.folder / name).read_text().split()[0])

    def note(self, name: str) -> str:
        """Return the text of the note ``name``."""
        return (self.folder / name).read_text().partition(" ")[2]

    @property
    def first_traceback(self) -> list[str]:
        """The last lines of the first traceback on standard error: the exception, and what is noted on it."""
        lines = re.sub(r"^\[rank\d+\]: ", "", self.err, flags=re.M).splitlines()
        if "Traceback (most recent call last):" not in lines:
            return []
        rest = lines[lines.index("Traceback (most recent call last):") + 1 :]
        while rest and rest[0].startswith(" "):
            rest.pop(0)
        return rest[:2]

    def __str__(self) -> str:
        return f"status {self.status}, left {self.left}\n--- out\n{self.out}\n--- err\n{self.err}"


class Script:
    """A script that runs in ``folder``.

    Args:
        folder: where it is written to and where its notes go.
        text: its code.
        arguments: what follows its name on the command line.
        command: the whole command in place of ``python script.py``; ``arguments`` follow it.
        cwd: where it is started; ``folder`` by default.
        env: variables besides those of this process.
        stdin: what it reads.
    """

    def __init__(
        self,
        folder: Path,
        text: str,
        *arguments: object,
        command: Sequence[str] | None = None,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: str = "",
    ) -> None:
        self.folder, self._mark = folder, uuid.uuid4().hex
        (folder / "script.py").write_text(text)
        (folder / "stdin").write_text(stdin)
        self._out, self._err = folder / "out", folder / "err"
        variables = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            # the project before its tests: the folder tests/core would pass for the package
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
            "NOTES": str(folder),
            "SCRIPT_MARK": self._mark,
            **(env or {}),
        }
        with open(self._out, "wb") as out, open(self._err, "wb") as err, open(folder / "stdin", "rb") as given:
            self.process = subprocess.Popen(
                [*(command or [sys.executable, "script.py"]), *map(str, arguments)],
                cwd=cwd or folder,
                env=variables,
                stdin=given,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def wait_for(self, name: str, seconds: float = 40.0) -> str:
        """Wait for the note ``name`` and return its text."""
        path, deadline = self.folder / name, time.monotonic() + min(seconds * busy(), 100.0)
        while not path.exists():
            assert time.monotonic() < deadline, f"no note {name!r} came\n{self._err.read_text()}"
            assert self.process.poll() is None, f"it ended without the note {name!r}\n{self._err.read_text()}"
            time.sleep(0.02)
        return path.read_text().partition(" ")[2]

    def note(self, name: str) -> None:
        """Leave a note as the script itself does."""
        (self.folder / name).write_text(f"{time.monotonic()} ")

    def processes(self) -> list[int]:
        """Return the numbers of all processes of this script that there are."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    ended = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                    if not ended and self._mark.encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def finish(self) -> Ended:
        """Wait for the end, then for all that is left; kill what does not go."""
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self.process.wait(min(LIMIT * busy(), 110.0))  # before the test itself is ended
        deadline = time.monotonic() + (SOON * busy() if status is not None else 0.0)
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        at = time.monotonic()
        self.kill()
        return Ended(self.folder, status, self._out.read_text(), self._err.read_text(), left, at)

    def kill(self) -> None:
        """Kill every process of this script, each by its number."""
        for number in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def run(folder: Path, text: str, *arguments: object, **settings: object) -> Ended:
    """Run a script to its end; see :class:`Script`."""
    with Script(folder, text, *arguments, **settings) as script:  # type: ignore[arg-type]
        return script.finish()


def note(name: str, text: object = "") -> None:
    """In a script: write down that something happened, and when."""
    path = Path(os.environ["NOTES"], name)
    part = path.with_name(f"{name}.{os.getpid()}")
    part.write_text(f"{time.monotonic()} {text}")
    part.rename(path)

"""Run the kit's programs: each in a session of its own, with a hard limit, and nothing left over afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.conformance.cases import Job, Program

WORKER = "core.conformance.worker"
MARK = "INTERLOCK_KIT"
"""A variable that every process of a program inherits, so that none can be left over unnoticed."""
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
START_LIMIT, JOB_LIMIT = 60.0, 30.0
"""Seconds that a program gets, and those for each of its jobs."""
GRACE = 10.0
"""Seconds within which the processes of a program that has ended must be gone."""
TAIL = 30


@dataclass(frozen=True)
class Ending:
    """How one start of a program ended: its exit status (None: it was ended), its output, and who was left."""

    code: int | None
    limit: float
    output: str
    log: Path
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.code is None:
            how = f"the program was still running after {self.limit:g} s"
        elif self.code < 0:
            how = f"the program was killed by {signal.Signals(-self.code).name}"
        else:
            how = f"the program ended with exit status {self.code}"
        return f"{how}; its last words:\n{self.tail}"

    @property
    def tail(self) -> str:
        """The last lines of the output."""
        return "\n".join(f"    {line}" for line in self.output.splitlines()[-TAIL:])


@dataclass
class Facts:
    """What is known of a job after its program: whether it went through, and what each rank noted."""

    job: Job
    place: Path
    ending: Ending
    error: str = ""
    _ranks: list[dict[str, Any]] = field(default_factory=list, init=False)

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """What the ranks noted, in their order."""
        if not self._ranks:
            self._ranks = self.read("rank")
        return self._ranks

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What the trials inside the run came to, by rank."""
        return self.read("answers")

    @property
    def hold_parts(self) -> bool:
        """Whether ranks hold parts of one model: those that read the same samples, and those that run no loop."""
        read = [str(record["batches"]) for record in self.ranks]
        return len(set(read)) < len(read) or len(read) < self.job.ranks

    @property
    def home(self) -> dict[str, Any]:
        """The parameters in the caller's module after the run."""
        import torch

        weights: dict[str, Any] = torch.load(self.place / "home.pt", weights_only=True)
        return weights

    def read(self, stem: str) -> list[Any]:
        """Return the content of each rank's file ``stem``."""
        import torch

        files = sorted(self.place.glob(f"{stem}[0-9]*.pt"), key=lambda path: int(path.stem.removeprefix(stem)))
        return [torch.load(file, weights_only=True) for file in files]


class Lab:
    """Runs programs when a check first asks for one of their jobs, and keeps what came of them."""

    def __init__(self, programs: Sequence[Program], folder: Path) -> None:
        self.programs = {job.name: program for program in programs for job in program.jobs}
        self.folder = folder
        self.endings: dict[str, list[Ending]] = {}
        self._facts: dict[str, Facts] = {}

    def facts(self, name: str) -> Facts:
        """Return what is known of the job ``name``."""
        if name not in self._facts:
            program = self.programs[name]
            if program.name not in self.endings:
                self._run(program)
        return self._facts[name]

    def _run(self, program: Program) -> None:
        """Start ``program`` as often as it takes: a job that fails ends it before those after it."""
        jobs = list(program.jobs)
        if any(job.resume for job in jobs):
            self.facts("saved")  # writes what they go on from
            jobs = [replace(job, per_rank=self._together()) if job.alone else job for job in jobs]
        self.endings[program.name] = []
        while jobs:
            number = len(self.endings[program.name])
            ending = start(program, jobs, self.folder / program.name, number)
            self.endings[program.name].append(ending)
            jobs = self._take(jobs, self.folder / program.name, ending)

    def _together(self) -> int:
        """Return how many samples all ranks together read in a micro-batch of the run that saves checkpoints."""
        facts = self.facts("saved")
        if facts.error:
            return 1  # nothing will go on from it
        return len({number for record in facts.ranks for number in record["batches"][0][1]})

    def _take(self, jobs: Sequence[Job], folder: Path, ending: Ending) -> list[Job]:
        """Keep the facts of the jobs that were done, and of the one that failed; return those after it."""
        for index, job in enumerate(jobs):
            place = folder / job.name
            outcome = place / "outcome.json"
            told = json.loads(outcome.read_text()) if outcome.exists() else {"ok": False, "error": str(ending)}
            error = "" if told["ok"] else str(told["error"])
            self._facts[job.name] = Facts(job, place, ending, error)
            if error and (place / "started").exists():
                return list(jobs[index + 1 :])
        return []  # all were done, or none could begin


def start(program: Program, jobs: Sequence[Job], folder: Path, number: int) -> Ending:
    """Start Python for ``jobs`` and wait for its end; end it, and whatever it left, when its time is over."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps([job.to_dict() for job in jobs]))
    mark = uuid.uuid4().hex
    log = folder / f"output{number}.txt"
    command = [sys.executable, *program.launcher, "-m", WORKER, str(folder)]
    limit = START_LIMIT + JOB_LIMIT * len(jobs)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=_environment(mark), cwd=folder, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            left = _end(process, mark, wait=GRACE if process.returncode is not None else 0.0)
    return Ending(code, limit, log.read_text(errors="replace"), log, left if code is not None else ())


def _environment(mark: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name not in LAUNCHER_VARIABLES}
    path = ours.get("PYTHONPATH")
    if path:  # programs run in folders of their own, where "src" would be another place, or none
        ours["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    return {**ours, "OMP_NUM_THREADS": "1", MARK: mark}


def _end(process: subprocess.Popen[bytes], mark: str, wait: float) -> tuple[str, ...]:
    """Wait until no process of the program is left; then end those that are, and return what they were."""
    left = _wait_for_none(mark, wait)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if process.returncode is None:
        process.kill()
        process.wait()
    _wait_for_none(mark, GRACE if left else 0.0)
    return tuple(f"process {pid} ({command})" for pid, command in left.items())


def _wait_for_none(mark: str, seconds: float) -> dict[int, str]:
    """Wait so long for the processes that carry ``mark`` to end; return those that did not."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def marked(mark: str) -> dict[int, str]:
    """Return the running processes that carry ``mark``, with their commands; where there is no /proc, none."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found[int(entry.name)] = " ".join(words).strip()
        except OSError:  # it has ended meanwhile, or is not ours to look at
            continue
    return found

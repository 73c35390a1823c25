"""Programs end: those that fail, those that hang, and what they leave."""

import os
from pathlib import Path

import pytest

from core.conformance import programs
from core.conformance.cases import Job, Program
from core.conformance.programs import Lab

pytestmark = pytest.mark.processes
FAKE_WORKER = """
import json, os, subprocess, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
for job in json.loads((folder / "jobs.json").read_text()):
    place = folder / job["name"]
    place.mkdir(exist_ok=True)
    (place / "started").touch()
    (place / "environment").write_text(json.dumps(dict(os.environ)))
    if job["name"] == "fails":
        (place / "outcome.json").write_text(json.dumps({"ok": False, "error": "ValueError: no"}))
        sys.exit(3)
    if job["name"] == "hangs":
        print("about to wait", flush=True)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        time.sleep(600)
    if job["name"] == "leaves":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if job["name"] == "crashes":
        os.abort()
    (place / "outcome.json").write_text(json.dumps({"ok": True}))
"""


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Return a function that makes a lab of jobs with these names, done by a worker that only pretends."""
    (tmp_path / "pretender.py").write_text(FAKE_WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setattr(programs, "WORKER", "pretender")
    monkeypatch.setattr(programs, "GRACE", 1.0)
    return lambda *names: Lab([Program("main", tuple(job(name) for name in names))], tmp_path / "runs")


def job(name):
    """Return a job of this name; what it trains does not matter."""
    return Job(name, "plain", "any", "any", "any", 1, 1)


def test_a_failed_job_is_alone(lab):
    """A job that fails ends its program; the jobs after it are done by another, and those before it count."""
    made = lab("first", "fails", "second")
    assert [made.facts(name).error for name in ("first", "fails", "second")] == ["", "ValueError: no", ""]
    assert [ending.code for ending in made.endings["main"]] == [3, 0]


def test_a_crash_is_a_failure(lab):
    """A job whose program is killed fails with the signal's name; the others are done."""
    made = lab("crashes", "second")
    assert "was killed by SIGABRT" in made.facts("crashes").error
    assert not made.facts("second").error


def test_a_program_that_cannot_begin(lab, monkeypatch):
    """A program that ends before its first job is not started again and again."""
    monkeypatch.setattr(programs, "WORKER", "no_such_module")
    made = lab("first", "second")
    assert "No module named no_such_module" in made.facts("second").error
    assert len(made.endings["main"]) == 1


def test_a_hang_ends(lab, monkeypatch):
    """A program that hangs is ended with everything it started; its last words are kept."""
    monkeypatch.setattr(programs, "START_LIMIT", 2.0)
    monkeypatch.setattr(programs, "JOB_LIMIT", 0.0)
    error = lab("hangs").facts("hangs").error
    assert "was still running after 2 s" in error
    assert "about to wait" in error
    assert not survivors()


def test_a_process_that_is_left(lab):
    """A process that outlives its program is named and ended."""
    ending = lab("leaves").facts("leaves").ending
    assert ending.code == 0
    assert len(ending.left) == 1
    assert "time.sleep(600)" in ending.left[0]
    assert not survivors()


def test_environment(lab):
    """A program runs with one thread per process, and without what a launcher left in the environment."""
    text = (lab("first").facts("first").place / "environment").read_text()
    assert '"OMP_NUM_THREADS": "1"' in text
    assert '"RANK"' not in text


def test_a_path_that_is_relative(lab, tmp_path, monkeypatch):
    """What PYTHONPATH names from where the kit was started is found by programs that run elsewhere."""
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tmp_path.name, "not-there"]))
    assert not lab("first").facts("first").error


def survivors():
    """Return the commands of running processes that a program of this test process has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            marked = any(part.startswith(f"{programs.MARK}=".encode()) for part in environment)
            if (
                marked
                and int(entry.name) != os.getpid()
                and os.fsencode(os.environ["PYTHONPATH"]) in b"".join(environment)
            ):
                found.append((entry / "cmdline").read_bytes())
        except OSError:
            continue
    return found

"""Processes as their starter sees them."""

import signal
import subprocess
import sys

import pytest

from core.errors import RankFailed
from core.parallel.interrupts import InterruptWatch, ignoring_interrupts
from core.parallel.processes import describe_exit, end_all, without_repetition
from core.parallel.rendezvous import RankTraceback

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


def start(code):
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "process 7 ended with exit status 0"),
        (3, "process 7 ended with exit status 3"),
        (-signal.SIGSEGV, "process 7 was killed by SIGSEGV"),
        (-signal.SIGKILL, "process 7 was killed by SIGKILL (the system does that when memory runs out)"),
        (-99, "process 7 was killed by signal 99"),
    ],
)
def test_exit_in_words(code, words):
    """An exit status is told in words, a signal by its name."""
    assert describe_exit(7, code) == words


def test_all_are_ended():
    """Processes are asked to end, those that do not listen are killed, and a failed one may end by itself."""
    slow = start("import sys, time; print('ready', flush=True); time.sleep(0.3); sys.exit(5)")
    processes = {1: slow, 2: start("import time; print('ready', flush=True); time.sleep(60)"), 3: start(DEAF)}
    end_all(processes, failed=1)
    assert [process.poll() for process in processes.values()] == [5, -signal.SIGTERM, -signal.SIGKILL]
    for process in processes.values():
        process.stdout.close()


def test_traceback_is_shown_once():
    """A failed process that has ended by itself has shown its traceback; for one that was killed it is shown here."""
    spoken = start("import sys; print('ready', flush=True); sys.exit(1)")
    killed = start("import time; print('ready', flush=True); time.sleep(60)")
    end_all({1: killed})
    spoken.wait()
    for process, shown in ((spoken, True), (killed, False)):
        failure = RankFailed(1, 2, "ValueError: x", "Traceback ...")
        failure.__cause__ = RankTraceback("Traceback ...")
        assert (without_repetition(failure, {1: process}).__cause__ is None) == shown
        process.stdout.close()


def test_ctrl_c_is_seen_by_another_thread():
    """The watch sees Ctrl-C while it listens, but not when it is ignored or when the user has a handler for it."""
    watch = InterruptWatch()
    with watch.listening():
        assert not watch.wait(0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert watch.wait(1)
        with ignoring_interrupts():
            signal.raise_signal(signal.SIGINT)
        assert not watch.wait(0.01)
        before = signal.signal(signal.SIGINT, lambda *_: None)
        signal.raise_signal(signal.SIGINT)
        assert not watch.wait(0.01)
        signal.signal(signal.SIGINT, before)
    assert signal.set_wakeup_fd(-1) == -1

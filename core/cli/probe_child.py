"""Run accelerators' probes in processes of their own, so that a hanging driver cannot hang the one that asks.

The child runs :func:`main` and prints its answer as JSON on its last line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from core.declarations import Availability


def run_probes(references: Mapping[str, str], timeout: float) -> dict[str, Availability]:
    """Run all probes at once and return each answer by the key of its reference.

    A probe that is not done after ``timeout`` seconds is killed, and its answer says so.
    """
    children = {key: _start(reference) for key, reference in references.items()}
    deadline = time.monotonic() + timeout
    return {key: _answer(child, deadline, timeout) for key, child in children.items()}


def _start(reference: str) -> subprocess.Popen[str]:
    # the parent's path, so that the child finds the same packages wherever it is started
    code = f"import sys; sys.path[:] = {sys.path!r}; from core.cli.probe_child import main; main({reference!r})"
    # a session of its own, so that what a probe starts can be ended with it
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _answer(child: subprocess.Popen[str], deadline: float, timeout: float) -> Availability:
    try:
        output, errors = child.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        _kill(child)
        # one that is stuck in the kernel does not die at once, and nobody must wait for it
        with suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=0.2)
        return Availability(0, f"its probe gave no answer within {timeout:g} seconds")
    try:
        return Availability(*json.loads(output.strip().splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        last = (errors.strip().splitlines() or ["it printed no answer"])[-1]
        return Availability(0, f"its probe ended {_how(child.returncode)}: {last}")


def _kill(child: subprocess.Popen[str]) -> None:
    if sys.platform == "win32":
        child.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def main(reference: str) -> None:
    """Run one probe and print its answer."""
    from core.availability import run_probe

    print(f"\n{json.dumps(run_probe(reference))}", flush=True)

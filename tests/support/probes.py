"""Probes of fake accelerators, one for each way a probe can behave."""

import os
import signal
import sys
import time

from core.declarations import Availability


def unbounded() -> Availability:
    return Availability()


def two() -> Availability:
    return Availability(2)


def four() -> Availability:
    return Availability(4)


def none() -> Availability:
    return Availability(0, "no driver found")


def only_a_reason() -> Availability:
    return Availability(reason="no driver found")


def raises() -> Availability:
    raise OSError("driver too old")


def exits() -> Availability:
    sys.exit(3)


def wrong_type() -> int:
    return 4


def negative() -> Availability:
    return Availability(-1)


def noisy() -> Availability:
    print("driver chatter on standard output")
    return Availability(2)


def hangs() -> Availability:
    time.sleep(600)
    return Availability(1)


def crashes() -> Availability:
    os.kill(os.getpid(), signal.SIGSEGV)
    return Availability(1)

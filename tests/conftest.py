"""Hold the whole suite to one rule: where everything that the tests need is installed, none of them may be skipped."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

main = sys.modules["__main__"]
if not getattr(main, "__file__", None):
    main.__file__ = pytest.__file__  # a worker of pytest-xdist comes from -c, but the tests are a script like any other

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell: so would be every child
    signal.signal(signal.SIGINT, signal.default_int_handler)

STRICT = os.environ.get("INTERLOCK_CI") == "1"

ROOT = Path(__file__).parent
LONG = ("clusters", "conformance", "docs", "plugins", "builtin_plugins")
"""Where tests that start processes belong to a part of its own: `make test` leaves them to `make test-long`."""


def pytest_collection_modifyitems(items):
    """Mark the tests of those parts, and refuse a name that another worker of the same run would spell otherwise."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid} has an address in its name: give its parameters other ids")
        place = item.path.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else ""
        if place.startswith(LONG) and item.get_closest_marker("processes"):
            item.add_marker("long")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _without_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _without_skip((yield))


def _without_skip(report):
    """Turn a skip into a failure under INTERLOCK_CI=1; an expected failure stays what it is."""
    if STRICT and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, which INTERLOCK_CI=1 takes for a failure: {reason}"
    return report

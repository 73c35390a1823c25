"""One session of the kit inside pytest: what is collected, what is left out and why, and the report."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.conformance import fixtures
from core.conformance.checks import ATTRIBUTE, Check
from core.conformance.report import Report
from core.conformance.setup import make_setup
from core.errors import InterlockError
from core.registry import get_registry

CHECKS = Path(__file__).with_name("test_*.py")
EMPTY = "nothing"


def start(config: pytest.Config, names: Mapping[str, str]) -> None:
    """Turn the kit on for this session.

    Raises:
        pytest.UsageError: when the Trainer would refuse what was named, with its words.
    """
    if config.getoption("numprocesses", None):
        raise pytest.UsageError("the kit starts processes of its own and counts on one pytest: run it with -n 0")
    try:
        setup = make_setup(
            get_registry(),
            names,
            devices=config.getoption("interlock_devices"),
            tolerance=config.getoption("interlock_tolerance"),
            options=config.getoption("interlock_options"),
        )
    except InterlockError as error:
        raise pytest.UsageError(str(error)) from error
    # whatever patterns the settings of the current folder have, the checks are found
    config.addinivalue_line("python_files", str(CHECKS))
    config.addinivalue_line("python_functions", "test_*")
    report = config.stash[fixtures.REPORT] = Report(setup)
    config.pluginmanager.register(fixtures, "interlock-conformance-fixtures")
    config.pluginmanager.register(KitSession(report), "interlock-conformance-session")


class KitSession:
    """The plugin that is registered for a session of the kit."""

    def __init__(self, report: Report) -> None:
        self.report, self.setup = report, report.setup

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give checks that are about each plugin, rule or claim one run for each of them."""
        check: Check | None = getattr(metafunc.function, ATTRIBUTE, None)
        if check is None:
            return
        kinds = [kind for kind in self.setup.named if kind in check.about]
        names = metafunc.fixturenames
        # an empty list of values would become a skip, or an error, as the settings of the current folder have it
        if "rule" in names:
            which = "needs" if "need" in metafunc.function.__name__ else "excludes"
            pairs: list[tuple[Any, Any]] = [
                (kind, rule) for kind in kinds for rule in getattr(self.setup.declaration(kind), which)
            ]
            ids = [f"{kind}: {rule.token}" for kind, rule in pairs]
            metafunc.parametrize(("kind", "rule"), pairs or [(None, None)], ids=ids or [EMPTY])
        elif "kind" in names:
            metafunc.parametrize("kind", kinds or [None], ids=kinds or [EMPTY])
        elif "tried" in names:
            tried = self.setup.tried if kinds else ()
            metafunc.parametrize("tried", tried or [None], ids=tried or [EMPTY])

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the checks of what is not claimed; the report lists them."""
        kept: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            check: Check | None = getattr(getattr(item, "function", None), ATTRIBUTE, None)
            wanted = check is None or (self.report.wants(check) and not _is_empty(item))
            (kept if wanted else left_out).append(item)
            if config.pluginmanager.hasplugin("timeout"):
                item.add_marker(pytest.mark.timeout(0))  # the programs have limits of their own
        items[:] = kept
        if left_out:
            config.hook.pytest_deselected(items=left_out)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self.report.add(item, report)
        return report

    def pytest_report_header(self) -> list[str]:
        """Say at the top what is checked."""
        return self.report.header()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the report that a person reads."""
        terminalreporter.section("interlock conformance")
        for line, colours in self.report.lines():
            terminalreporter.write_line(line, **colours)


def _is_empty(item: pytest.Item) -> bool:
    """Tell whether there was nothing to make this check for."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.id == EMPTY

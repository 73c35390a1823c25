"""The report of a session: what passed, what is claimed and lacking, and what was not looked at, and why."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from core.conformance.checks import ATTRIBUTE, LEFT, Check
from core.conformance.setup import Setup
from core.vocabulary import meaning

Line = tuple[str, Mapping[str, bool]]
PLAIN: Mapping[str, bool] = {}
BETWEEN_RANKS = "exchange between ranks"


class Row(NamedTuple):
    """One check that was done: the fact that it states, what it was done for, and what was found instead."""

    fact: str
    what_for: str = ""
    found: str = ""


class Report:
    """Keeps the outcome of every check, and of those that were left out the reason."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.folder: Path | None = None
        self.passed: list[Row] = []
        self.failed: list[Row] = []
        self.unjudged: list[Row] = []
        self._not_claimed: dict[str, str] = {}
        self._not_looked_at: dict[str, str] = {}
        self._with_check: set[str] = set()
        self._judged: set[str] = set()

    def wants(self, check: Check) -> bool:
        """Tell whether ``check`` is to be done here; if not, keep the reason."""
        if not set(check.about) & set(self.setup.named):
            return False
        token = check.claims
        standing = self.setup.standing(token) if token else None
        if standing is not None and not standing.claimed:
            self._not_claimed[token] = meaning(token)
            return False
        hindrance = standing.hindrance if standing is not None else ""
        if check.several and self.setup.plan.world_size == 1:
            hindrance = "this run has one process"
        if not hindrance and check.hindrance is not None:
            hindrance = check.hindrance(self.setup)
        if hindrance:
            self._not_looked_at[token or BETWEEN_RANKS] = hindrance
        else:
            self._with_check.add(token)
        return not hindrance

    def add(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Take the outcome of one phase of one check."""
        if report.when != "call" and report.passed:
            return
        fact, what_for = fact_of(item)
        token = _check_of(item).claims
        if not report.skipped:
            self._judged.add(token)
        if report.passed:
            self.passed.append(Row(fact, what_for))
        elif report.skipped:
            reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
            reason = reason.removeprefix("Skipped: ")
            if reason.startswith(LEFT):
                self._not_looked_at[token or fact] = reason.removeprefix(LEFT)
            else:
                self.unjudged.append(Row(fact, what_for, reason))
        else:
            claim = f"claims {token}" if token and self._is_own(token) else "every plugin of its kind claims this"
            self.failed.append(Row(fact, what_for, f"{claim}, but: {report.longreprtext}"))

    def _is_own(self, token: str) -> bool:
        """Tell whether one of the plugins that are checked makes the claim; the others of the plan only help."""
        return any(token in self.setup.declaration(kind).provided for kind in self.setup.named)

    def header(self) -> list[str]:
        """Say what is checked, and in which plan."""
        subjects = [
            f"{kind} {(chosen := self.setup.chosen(kind)).name!r} [{chosen.distribution} {chosen.version}]"
            for kind in self.setup.named
        ]
        plan = self.setup.plan
        processes = f"{plan.world_size} process{'es' if plan.world_size > 1 else ''}"
        return [f"interlock: checking {', '.join(subjects)}", f"interlock: with {plan.combination}; {processes}"]

    def lines(self) -> Iterator[Line]:
        """Yield the report, with the colours of each line."""
        for line in self.header():
            yield line.removeprefix("interlock: "), PLAIN
        yield from _block("passed", self.passed, {"green": True})
        yield from _block("failed", self.failed, {"red": True})
        by_reason = sorted(self.unjudged, key=lambda row: row.found)
        yield from _block("not judged, because of another failure", by_reason, {"yellow": True})
        yield from _table("not claimed", self._not_claimed)
        yield from _table("claimed, and not looked at here", self.not_looked_at)
        if self.folder is not None and (self.failed or self.unjudged):
            yield "", PLAIN
            yield f"the output of the runs is in {self.folder}", PLAIN

    @property
    def not_looked_at(self) -> dict[str, str]:
        """What is claimed and no check looked at, with the reason."""
        unseen = {token: why for token, why in self._not_looked_at.items() if token not in self._judged}
        seen = {*self._with_check, *self._not_looked_at, *self.setup.tried, f"launch.{self.setup.plan.launch.how}"}
        for kind in self.setup.named:
            for token in self.setup.declaration(kind).provides:
                if token not in seen and not token.startswith("device."):
                    unseen.setdefault(token, f"the kit has no check for it: {meaning(token)}")
        return unseen


def fact_of(item: pytest.Item) -> tuple[str, str]:
    """Return the sentence that a check states, and what it was done for."""
    fact = (inspect.getdoc(getattr(item, "function", None)) or item.name).split("\n\n")[0].replace("\n", " ")
    callspec = getattr(item, "callspec", None)
    return fact, callspec.id if callspec is not None else ""


def _check_of(item: pytest.Item) -> Check:
    found = getattr(getattr(item, "function", None), ATTRIBUTE, None)
    return found if isinstance(found, Check) else Check(())


def _block(title: str, rows: Sequence[Row], colours: Mapping[str, bool]) -> Iterator[Line]:
    """Write rows; those that state one fact, or share one finding, stand together."""
    if not rows:
        return
    yield "", PLAIN
    yield f"{title}: {len(rows)}", {**colours, "bold": True}
    together: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        together.setdefault((row.fact, row.found), []).append(row.what_for)
    findings = [found for _, found in together]
    for number, ((fact, found), each) in enumerate(together.items()):
        what_for = f" [{', '.join(each)}]" if any(each) else ""
        yield f"  {fact}{what_for}", PLAIN
        if found not in findings[number + 1 : number + 2]:
            for line in found.rstrip().splitlines():
                yield f"      {line}", colours


def _table(title: str, rows: Mapping[str, str]) -> Iterator[Line]:
    if rows:
        yield "", PLAIN
        yield f"{title}: {len(rows)}", {"bold": True}
    width = max(map(len, rows), default=0)
    for token, text in sorted(rows.items()):
        yield f"  {token.ljust(width)}  {text}", PLAIN

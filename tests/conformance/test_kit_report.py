"""The report, from outcomes that were made up."""

from types import SimpleNamespace

import pytest

from core.conformance.checks import ATTRIBUTE, LEFT, Check, check
from core.conformance.report import Report
from core.conformance.setup import make_setup
from core.registry import get_registry


@pytest.fixture
def report():
    """Return the empty report of a strategy with one process."""
    return Report(make_setup(get_registry(), {"strategy": "single_device", "accelerator": "cpu"}))


def item(fact, what_for="", claims=""):
    """Return what pytest would have collected."""

    def function():
        pass

    function.__doc__ = fact
    setattr(function, ATTRIBUTE, Check(("strategy",), claims))
    callspec = SimpleNamespace(id=what_for) if what_for else None
    return SimpleNamespace(function=function, name="test", callspec=callspec)


def outcome(word, text=""):
    """Return how pytest would have told it."""
    told = ("file.py", 1, f"Skipped: {text}") if word == "skipped" else text
    return SimpleNamespace(
        when="call",
        passed=word == "passed",
        skipped=word == "skipped",
        failed=word == "failed",
        longrepr=told,
        longreprtext=text,
    )


def text_of(report):
    """Return the report as it is read."""
    return "\n".join(line for line, _ in report.lines())


def test_parts(report):
    """Facts that passed stand together; a failure says what is claimed and what was found."""
    report.add(item("It reduces.", "sum"), outcome("passed"))
    report.add(item("It reduces.", "mean"), outcome("passed"))
    report.add(item("It clips.", claims="clip.norm"), outcome("failed", "it does not\nsee there"))
    report.add(item("It saves."), outcome("failed", "nothing is written"))
    report.add(item("It resumes."), outcome("skipped", "nothing was saved"))
    report.add(item("It goes on."), outcome("skipped", "nothing was saved"))
    text = text_of(report)
    assert "passed: 2\n  It reduces. [sum, mean]\n" in text
    assert "failed: 2\n  It clips.\n      claims clip.norm, but: it does not\n      see there\n  It saves.\n" in text
    assert "every plugin of its kind claims this, but: nothing is written" in text
    assert "because of another failure: 2\n  It resumes.\n  It goes on.\n      nothing was saved" in text


def test_not_claimed(report):
    """A check of what is not claimed is not wanted, and the report says what the token means."""
    assert not report.wants(Check(("strategy",), "sharded.optimizer"))
    assert "not claimed: 1\n  sharded.optimizer  each rank holds the optimizer state" in text_of(report)


def test_not_looked_at(report):
    """What is claimed and has no verdict stands in a part of its own, with the reason."""
    assert report.wants(Check(("strategy",), "clip.norm"))
    assert not report.wants(Check(("strategy",), "grad_sync.skip", several=True))
    assert not report.wants(Check(("strategy",), hindrance=lambda setup: "it is too early"))
    report.add(item("It meets.", claims="manual_optimization"), outcome("skipped", LEFT + "nobody came"))
    told = report.not_looked_at
    assert told["grad_sync.skip"] == "this run has one process"
    assert told["manual_optimization"] == "nobody came"
    assert told["exchange between ranks"] == "it is too early"
    assert told["rpc"].startswith("the kit has no check for it")
    assert "clip.norm" not in told
    assert "device.cpu" not in told


def test_other_kinds(report):
    """A check about a kind that was not named is not wanted, and nothing is said of it."""
    assert not report.wants(Check(("precision",), "loss_scaling"))
    assert "loss_scaling" not in text_of(report)


def test_whose_claim_it_is():
    """A failure of a check for a claim of a plugin that only helps is not told as the own claim of those checked."""
    report = Report(make_setup(get_registry(), {"precision": "32-true"}))
    report.add(item("It clips.", claims="clip.norm"), outcome("failed", "it does not"))
    assert "every plugin of its kind claims this, but: it does not" in text_of(report)
    assert "claims clip.norm" not in text_of(report)


def test_every_kind():
    """A check that names no kind is about all three."""

    @check(claims="clip.norm")
    def example():
        """Nothing."""

    assert getattr(example, ATTRIBUTE) == Check(("accelerator", "precision", "strategy"), "clip.norm")

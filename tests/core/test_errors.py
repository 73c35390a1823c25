"""Exceptions: built from facts that stay on them, one base, no word lost on the way between processes."""

import copy
import inspect
import pickle

import pytest

from core import errors
from core.errors import (
    DuplicatePlugin,
    InterlockError,
    InvalidArgument,
    InvalidCombination,
    InvalidDeclaration,
    PluginBroken,
    PluginUnavailable,
    RankFailed,
    UnknownPlugin,
    WrongType,
)
from core.rules import Combination, Violation

NEED = Violation("strategy 's'", "needs", "rpc | spmd", "it talks", ("accelerator 'a'", "precision 'p'"))
NEAR = Combination("a", "p", "t")
ALL = [
    InvalidArgument("devices 0 asks for 0 devices"),
    WrongType("devices must be an int"),
    InvalidDeclaration("strategy 's'", ["first", "second"]),
    UnknownPlugin("strategy", "dpp", known=["ddp"], nearest=["ddp"]),
    InvalidCombination("strategy='s'", [NEED], [NEAR]),
    PluginUnavailable("strategy='s'", ["no driver"], [NEAR]),
    PluginBroken("strategy", "s", distribution="acme 1.0", phase="import", reason="boom"),
    DuplicatePlugin("strategy", "s", ["acme", "bolt"]),
    RankFailed(1, 2, "ValueError: x", "Traceback ..."),
]


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_errors_travel_between_processes(error):
    """An error that is pickled or copied comes back with its message and its facts."""
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_messages_have_one_style(error):
    """A message starts in lower case and its lines end without a period."""
    text = str(error)
    assert text[0].islower()
    assert not any(line.endswith(".") and not line.endswith("...") for line in text.splitlines())


def test_one_base_for_all():
    """One except clause catches whatever Interlock raises on purpose, and it is a ValueError for bad input."""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert len(kinds) > 9
    assert all(issubclass(kind, InterlockError) for kind in kinds)
    assert issubclass(InterlockError, ValueError)
    assert issubclass(WrongType, TypeError)


def test_invalid_combination_in_full():
    """A refusal says what was asked, each broken rule with its reason, and what would work."""
    assert str(InvalidCombination("strategy='s', devices=2", [NEED], [NEAR])).splitlines() == [
        "strategy='s', devices=2 cannot work together",
        "  - strategy 's' needs rpc or spmd, which none of accelerator 'a', precision 'p' provides",
        "    reason: it talks",
        "nearest combinations that work here:",
        "  accelerator='a', precision='p', strategy='t'",
    ]


def test_plugin_broken_in_full():
    """A broken plugin is named with whose it is, when it failed, why, and how to turn it off."""
    error = PluginBroken("strategy", "s", distribution="acme 1.0", phase="import", reason="ImportError: boom")
    assert str(error).splitlines() == [
        "strategy 's' from acme 1.0 is broken",
        "  while: import",
        "  reason: ImportError: boom",
        "  hint: report it to the authors of acme 1.0, or turn it off with INTERLOCK_BLOCK=s",
    ]


def test_duplicate_in_full():
    """A name in conflict is told with everyone who claims it and with what chooses each."""
    assert str(DuplicatePlugin("strategy", "s", ["acme", "bolt"])).splitlines() == [
        "strategy 's' is claimed by 2 plugins, from acme, bolt",
        "  hint: choose one as 'acme:s' or 'bolt:s', or turn one off with INTERLOCK_BLOCK",
    ]

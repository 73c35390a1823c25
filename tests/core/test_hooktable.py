"""The table of hooks and the specifications of hooks say the same."""

import inspect
import re

import pytest

from core import hookspecs
from core.hooktable import HOOKS, may_wrap

SPECS = {
    name: function
    for name, function in inspect.getmembers(hookspecs, inspect.isfunction)
    if hasattr(function, "interlock_spec")
}


def test_table_and_specifications_name_the_same_hooks():
    """Every hook in the table has a specification, and every specification is in the table."""
    assert set(SPECS) == set(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_specification_names_the_owner(hook):
    """The text of each hook ends with its one owner, the one that the table has."""
    assert f"One owner: the {HOOKS[hook].owner}." in inspect.getdoc(SPECS[hook])


@pytest.mark.parametrize("hook", HOOKS)
def test_specification_names_who_may_wrap(hook):
    """The text of each hook speaks of wrapping exactly where the table allows it, and of those kinds."""
    last = inspect.getdoc(SPECS[hook]).partition("One owner:")[2]
    said = {kind for kind in ("accelerator", "precision", "strategy") if re.search(rf"[Tt]he {kind}\b", last)}
    if HOOKS[hook].wrappers:
        assert "may wrap it" in last
        assert set(HOOKS[hook].wrappers) <= said | ({HOOKS[hook].owner} & said)
    else:
        assert "may wrap" not in last


@pytest.mark.parametrize("hook", HOOKS)
def test_specification_explains_its_arguments(hook):
    """Each specification stops at its one result, has types for everything, and starts with one full sentence."""
    function = SPECS[hook]
    assert function.interlock_spec["firstresult"]
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())
    first = inspect.getdoc(function).splitlines()[0]
    assert first.endswith((".", "micro-batch.", "last."))


def test_no_kind_wraps_what_it_owns():
    """A hook's owner is never among those that may wrap it."""
    for hook, rule in HOOKS.items():
        assert rule.owner not in rule.wrappers, hook
    assert "setup_device" in may_wrap("strategy")
    assert "reduce" not in may_wrap("strategy")

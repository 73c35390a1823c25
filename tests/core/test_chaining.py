"""A hook and its wrappers as one call mean what pluggy's own call of them means."""

import pluggy
import pytest

from core.hookspecs import hookimpl
from core.plugins.chaining import chained

hookspec = pluggy.HookspecMarker("interlock")


class Specs:
    @hookspec(firstresult=True)
    def act(self, first, second):
        """Do something."""


class Owner:
    @hookimpl
    def act(self, second, first):
        if isinstance(first, Exception):
            raise first
        return [first, second]


class Adding:
    @hookimpl(wrapper=True)
    def act(self, first):
        return ["adding", *(yield)]


class Catching:
    @hookimpl(wrapper=True)
    def act(self):
        try:
            return (yield)
        except ValueError as error:
            return ["caught", error.args[0]]


class Translating:
    @hookimpl(wrapper=True)
    def act(self, first, second):
        try:
            return (yield)
        except KeyError as error:
            raise LookupError(error.args[0]) from error


class Silent:
    @hookimpl(wrapper=True)
    def act(self):
        return 1
        yield


class Greedy:
    @hookimpl(wrapper=True)
    def act(self):
        yield
        yield


def both(*plugins):
    """Return pluggy's call of the hook and ours, each by position."""
    manager = pluggy.PluginManager("interlock")
    manager.add_hookspecs(Specs)
    for plugin in plugins:
        manager.register(plugin(), name=plugin.__name__)
    caller = manager.hook.act
    chain = chained(caller.get_hookimpls(), tuple(caller.spec.argnames))
    return lambda first, second: caller(first=first, second=second), chain


@pytest.mark.parametrize("given", [1, ValueError("bad"), KeyError("gone"), TypeError("other")], ids=repr)
@pytest.mark.parametrize("wrappers", [(), (Adding,), (Catching, Adding), (Adding, Catching, Translating)], ids=len)
def test_results_and_errors_are_pluggys(given, wrappers):
    """Results pass through the wrappers and errors too, which may be caught or become others."""
    outcomes = []
    for call in both(Owner, *wrappers):
        try:
            outcomes.append(call(given, 2))
        except Exception as error:
            outcomes.append((type(error), error.args))
    assert outcomes[0] == outcomes[1]


def test_a_wrapper_yields_once():
    """A wrapper that yields never, or twice, is named."""
    with pytest.raises(RuntimeError, match="the wrapper of Silent did not yield"):
        both(Owner, Silent)[1](1, 2)
    with pytest.raises(RuntimeError, match="the wrapper of Greedy yielded twice"):
        both(Owner, Greedy)[1](1, 2)


def test_what_is_no_owner_in_wrappers_is_left_to_pluggy():
    """Several owners, or wrappers of the older kind, are not chained."""

    class Older:
        @hookimpl(hookwrapper=True)
        def act(self):
            yield

    assert both(Owner, Older)[1] is None
    assert both(Owner, type("Other", (Owner,), {}), Adding)[1] is None

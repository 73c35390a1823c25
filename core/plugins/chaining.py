"""One plain callable for a hook and what wraps it.

pluggy finds, checks and orders the implementations of a run once. Calling them through it costs several microseconds,
in each step; nested functions that call the same generators in the same order mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pluggy

Call = Callable[..., Any]


def chained(implementations: Sequence[pluggy.HookImpl], expected: tuple[str, ...]) -> Call | None:
    """Return a call of the owner inside its wrappers, or None where the implementations are of another kind.

    Args:
        implementations: as pluggy orders them, the owner first and the outermost wrapper last.
        expected: the hook's arguments in order; what is returned takes them by position.
    """
    owner, *wrappers = implementations
    if owner.wrapper or owner.hookwrapper or not all(each.wrapper for each in wrappers):
        return None
    call = _by_position(owner, expected)
    for wrapper in wrappers:
        call = _around(_by_position(wrapper, expected), call, str(wrapper.plugin_name))
    return call


def _by_position(implementation: pluggy.HookImpl, expected: tuple[str, ...]) -> Call:
    """Return the implementation as a function of all arguments of its hook, of which it may take some."""
    function, taken = implementation.function, implementation.argnames
    if taken == expected:
        return function
    places = [expected.index(name) for name in taken]
    return lambda *given: function(*(given[place] for place in places))


def _around(wrapper: Call, inner: Call, name: str) -> Call:
    """Return ``inner`` inside the generator that ``wrapper`` makes; it sees the result, and may give another."""

    def call(*given: Any) -> Any:
        generator = wrapper(*given)
        try:
            next(generator)
        except StopIteration:
            raise RuntimeError(f"the wrapper of {name} did not yield") from None
        try:
            result = inner(*given)
        except BaseException as error:
            try:
                generator.throw(error)
            except StopIteration as over:
                return over.value
        else:
            try:
                generator.send(result)
            except StopIteration as over:
                return over.value
        generator.close()
        raise RuntimeError(f"the wrapper of {name} yielded twice")

    return call

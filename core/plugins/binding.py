"""Bring the chosen plugins together: check them, and resolve each hook once to the plainest callable."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pluggy

from core import hookspecs
from core.discovery import PhaseError, load_object
from core.errors import PluginBroken
from core.hooktable import HOOKS
from core.plan import Chosen, Plan
from core.plugins.base import Plugin

TRACE_VARIABLE = "INTERLOCK_TRACE"


class Hooks:
    """The hooks of one run as attributes: ``hooks.reduce(tensor, "mean")``, positional or by keyword.

    Where one plugin implements a hook and nothing wraps it, the attribute is that plugin's bound method and
    a call costs what a method call costs. Where something wraps it, the call goes through pluggy.
    """

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self._idle = set()
        trace = bool(os.environ.get(TRACE_VARIABLE))
        for hook in HOOKS:
            caller = getattr(manager.hook, hook)
            implementations = caller.get_hookimpls()
            if len(implementations) == 1:
                function = implementations[0].function
                if getattr(function, "does_nothing", False):
                    self._idle.add(hook)
            else:
                function = _through_pluggy(caller)
            names = [impl.plugin_name for impl in reversed(implementations)]
            setattr(self, hook, _traced(hook, names, function) if trace else function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"there is no hook {name!r}; the hooks are {', '.join(HOOKS)}")

    def changes(self, hook: str) -> bool:
        """Tell whether a call of ``hook`` can have an effect, so that the loop may leave it out if not."""
        return hook not in self._idle


def _through_pluggy(caller: pluggy.HookCaller) -> Callable[..., Any]:
    argument_names = tuple(caller.spec.argnames) if caller.spec else ()

    def call(*args: Any, **kwargs: Any) -> Any:
        return caller(**dict(zip(argument_names, args, strict=False)), **kwargs)

    return call


def _traced(hook: str, names: list[str], function: Callable[..., Any]) -> Callable[..., Any]:
    label = f"{hook} ({' > '.join(names)})"

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent = (time.perf_counter() - start) * 1e6
            print(f"interlock: {label} {spent:.1f} us", file=sys.stderr, flush=True)

    return call


def make_plugins(plan: Plan, instances: dict[str, Plugin]) -> dict[str, Plugin]:
    """Return the implementation of each kind: the user's instance where given, else a new one with the plan's options.

    Raises:
        PluginBroken: when an implementation cannot be imported or built, the cause chained.
    """
    plugins: dict[str, Plugin] = {}
    for chosen in plan.chosen:
        kind = chosen.declaration.kind
        plugins[kind] = instances.get(kind) or _build(chosen)
        plugins[kind].plan = plan
    return plugins


def _build(chosen: Chosen) -> Plugin:
    try:
        implementation = load_object(chosen.declaration.implementation, "import of the implementation")
    except PhaseError as error:
        raise _broken(chosen, error.phase, error.reason) from error.__cause__
    if not (isinstance(implementation, type) and issubclass(implementation, Plugin)):
        raise _broken(chosen, "import of the implementation", f"{implementation!r} is not a subclass of Plugin")
    try:
        return implementation(**dict(chosen.options))
    except Exception as error:
        raise _broken(chosen, "construction", f"{type(error).__name__}: {error}") from error


def _label(chosen: Chosen) -> str:
    return f"{chosen.declaration.kind} {chosen.name}"


def _broken(chosen: Chosen, phase: str, reason: str) -> PluginBroken:
    where = f"{chosen.distribution} {chosen.version}"
    return PluginBroken(chosen.declaration.kind, chosen.name, distribution=where, phase=phase, reason=reason)


def bind(plan: Plan, plugins: dict[str, Plugin]) -> Hooks:
    """Register the plugins of a run in a fresh manager, hold them to their declarations, resolve the hooks.

    Raises:
        PluginBroken: when a hook is misspelt or has a wrong argument, is implemented by a kind that does not own
            it, or wraps something that the declaration does not say, or says and does not.
    """
    manager = pluggy.PluginManager("interlock")
    manager.add_hookspecs(hookspecs)
    # the last one registered wraps outermost: accelerator around precision around strategy
    for chosen in (plan.strategy, plan.precision, plan.accelerator):
        kind = chosen.declaration.kind
        try:
            manager.register(plugins[kind], name=_label(chosen))
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise _broken(chosen, "registration of its hooks", str(error)) from error
    for hook in HOOKS:
        _check_hook(hook, getattr(manager.hook, hook).get_hookimpls(), plan)
    hooks = Hooks(manager)
    for plugin in plugins.values():
        plugin.hooks = hooks
    return hooks


def _check_hook(hook: str, implementations: list[pluggy.HookImpl], plan: Plan) -> None:
    rule = HOOKS[hook]
    by_name = {_label(chosen): chosen for chosen in plan.chosen}
    owners = []
    for impl in implementations:
        chosen = by_name[impl.plugin_name]
        kind = chosen.declaration.kind
        if impl.wrapper or impl.hookwrapper:
            if hook not in chosen.declaration.wraps:
                raise _broken(chosen, "registration of its hooks", f"it wraps {hook!r} but does not declare it")
        elif kind != rule.owner:
            raise _broken(chosen, "registration of its hooks", f"{hook!r} belongs to the {rule.owner}, not the {kind}")
        else:
            owners.append(chosen)
    wrapping = {impl.plugin_name for impl in implementations if impl.wrapper or impl.hookwrapper}
    for chosen in plan.chosen:
        if hook in chosen.declaration.wraps and _label(chosen) not in wrapping:
            raise _broken(chosen, "registration of its hooks", f"it declares to wrap {hook!r} but does not")
    if not owners:
        owner = next(c for c in plan.chosen if c.declaration.kind == rule.owner)
        raise _broken(owner, "registration of its hooks", f"it does not implement {hook!r}")

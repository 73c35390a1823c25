"""Bring the chosen plugins together: check them, and resolve each hook once to the plainest callable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pluggy

from core import hookspecs
from core.discovery import PhaseError, load_object
from core.errors import PluginBroken
from core.hooktable import HOOKS
from core.plan import Chosen, Plan
from core.plugins.answers import ANSWERS, checked
from core.plugins.base import Plugin
from core.plugins.chaining import chained
from core.plugins.contract import hook_problems
from core.plugins.tracing import Tracer, is_wanted
from core.wording import shown, told

IMPORT = "import of the implementation"
BUILD = "construction"
REGISTER = "registration of its hooks"
RUN = "a call of its hook"


class Hooks:
    """The hooks of one run as attributes: ``hooks.reduce(tensor, "mean")``, positional or by keyword.

    Where one plugin implements a hook and nothing wraps it, the attribute is that plugin's bound method and
    a call costs what a method call costs. Where something wraps it, it is a call in the wrappers' calls (see
    :mod:`core.plugins.chaining`).
    """

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self._idle = set()
        tracer = Tracer() if is_wanted() else None
        for hook in HOOKS:
            caller = getattr(manager.hook, hook)
            implementations = caller.get_hookimpls()
            # what is traced stays with pluggy: the trace puts its stopwatch into pluggy's own list
            function = _resolve(caller, implementations, chain=tracer is None)
            if len(implementations) == 1 and getattr(function, "does_nothing", False):
                self._idle.add(hook)
            setattr(self, hook, tracer.traced(hook, implementations, function) if tracer else function)
        if tracer:
            self._idle.clear()  # a trace shows every call, those too that have no effect

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"there is no hook {name!r}; the hooks are {', '.join(HOOKS)}")

    def changes(self, hook: str) -> bool:
        """Tell whether a call of ``hook`` can have an effect, so that the loop may leave it out if not."""
        return hook not in self._idle


def _resolve(caller: pluggy.HookCaller, implementations: list[pluggy.HookImpl], *, chain: bool) -> Callable[..., Any]:
    assert caller.spec is not None, "every hook of the table has a specification"
    expected = tuple(caller.spec.argnames)
    only = implementations[0] if len(implementations) == 1 else None
    if only is not None and only.argnames == expected:
        return only.function
    through = chained(implementations, expected) if chain else None

    def call(*args: Any, **kwargs: Any) -> Any:
        if through is not None and not kwargs:
            return through(*args)
        given = dict(zip(expected, args, strict=False), **kwargs)
        return caller(**given) if through is None else through(*(given[name] for name in expected))

    call.does_nothing = only is not None and getattr(only.function, "does_nothing", False)  # type: ignore[attr-defined]
    return call


def make_plugins(plan: Plan, instances: dict[str, Plugin]) -> dict[str, Plugin]:
    """Return the implementation of each kind: the user's instance where given, else a new one with the plan's options.

    Raises:
        PluginBroken: when an implementation cannot be imported or built, the cause chained.
    """
    plugins: dict[str, Plugin] = {}
    for chosen in plan.chosen:
        kind = chosen.declaration.kind
        # an instance may be false, as one with a length of 0 is
        plugin = instances[kind] if instances.get(kind) is not None else _build(chosen)
        try:
            plugin.plan = plan
        except Exception as error:
            raise broken(chosen, BUILD, f"an instance does not take its plan: {told(error)}") from error
        plugins[kind] = plugin
    return plugins


def _build(chosen: Chosen) -> Plugin:
    try:
        implementation = load_object(chosen.declaration.implementation, IMPORT)
    except PhaseError as error:
        raise broken(chosen, error.phase, error.reason) from error.__cause__
    if not (isinstance(implementation, type) and issubclass(implementation, Plugin)):
        reference = chosen.declaration.implementation
        raise broken(chosen, IMPORT, f"{reference} is {shown(implementation)}, not a subclass of core.plugins.Plugin")
    try:
        made: object = implementation(**dict(chosen.options))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a plugin must not end the program without a word
        raise broken(chosen, BUILD, told(error)) from error
    if not isinstance(made, implementation):
        raise broken(chosen, BUILD, f"{implementation.__name__}() makes {shown(made)}, not an instance of itself")
    return made


def _label(chosen: Chosen) -> str:
    return f"{chosen.declaration.kind} {chosen.name}"


def broken(chosen: Chosen, phase: str, reason: str) -> PluginBroken:
    """Return the error of a chosen plugin whose own code failed in ``phase``."""
    where = f"{chosen.distribution} {chosen.version}"
    return PluginBroken(chosen.declaration.kind, chosen.name, distribution=where, phase=phase, reason=reason)


def bind(plan: Plan, plugins: dict[str, Plugin]) -> Hooks:
    """Register the plugins of a run in a fresh manager, hold them to their declarations, resolve the hooks.

    The manager is this run's own, so a plugin that is refused leaves nothing behind.

    Raises:
        PluginBroken: when a hook is misspelt or has a wrong argument, is implemented by a kind that does not own
            it, or wraps something that the declaration does not say, or says and does not.
    """
    manager = pluggy.PluginManager("interlock")
    manager.add_hookspecs(hookspecs)
    # the last one registered wraps outermost: accelerator around precision around strategy
    for chosen in (plan.strategy, plan.precision, plan.accelerator):
        plugin = plugins[chosen.declaration.kind]
        problems = hook_problems(type(plugin), chosen.declaration)
        if problems:
            raise broken(chosen, REGISTER, "; ".join(problems))
        try:
            manager.register(plugin, name=_label(chosen))
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise broken(chosen, REGISTER, str(error)) from error
    hooks = Hooks(manager)
    for hook, wanted in ANSWERS.items():
        last = getattr(manager.hook, hook).get_hookimpls()[-1].plugin  # the outermost has the last word
        answering = next(chosen for chosen in plan.chosen if plugins[chosen.declaration.kind] is last)
        setattr(hooks, hook, checked(hook, getattr(hooks, hook), wanted, partial(broken, answering, RUN)))
    for plugin in plugins.values():
        plugin.hooks = hooks
    return hooks

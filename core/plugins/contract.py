"""Hold an implementation's hooks against the specifications, the table of owners and its declaration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from core import hookspecs
from core.declarations import Declaration
from core.hookspecs import hookimpl
from core.hooktable import HOOKS, may_wrap

_MARK = f"{hookimpl.project_name}_impl"


class Implemented(NamedTuple):
    """One method of a plugin that answers or wraps a hook."""

    hook: str
    wraps: bool
    signature: inspect.Signature
    problem: str
    code: CodeType


def hook_problems(kind: type, declaration: Declaration) -> list[str]:
    """Return what is wrong with the hooks of the class ``kind``, which ``declaration`` names; empty when nothing is."""
    found = list(implemented(kind))
    known = [item for item in found if item.hook in HOOKS]
    problems = [_unknown(item.hook) for item in found if item.hook not in HOOKS]
    problems += [f"its {item.hook!r} {item.problem}" for item in known if item.problem]
    problems += [problem for item in known for problem in _argument_problems(item)]
    problems += [problem for item in known for problem in _role_problems(item, declaration)]
    return problems + list(_missing(kind, known, declaration))


def implemented(kind: type) -> Iterator[Implemented]:
    """Yield every method of the class ``kind`` that is marked as a hook's implementation."""
    for name in dir(kind):
        attribute = inspect.getattr_static(kind, name)
        function = attribute.__func__ if isinstance(attribute, classmethod | staticmethod) else attribute
        mark = getattr(attribute, _MARK, None) or getattr(function, _MARK, None)
        if inspect.isfunction(function) and isinstance(mark, dict):
            signature = inspect.signature(function)
            if not isinstance(attribute, staticmethod):  # the first argument is the plugin
                signature = signature.replace(parameters=list(signature.parameters.values())[1:])
            wraps = bool(mark.get("wrapper") or mark.get("hookwrapper"))
            problem = _form_problem(function, wraps)
            yield Implemented(mark.get("specname") or name, wraps, signature, problem, function.__code__)


def _form_problem(function: Callable[..., Any], wraps: bool) -> str:
    """Return why calling ``function`` would not run it; "" when it does."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is async, and nothing would await it"
    if not wraps and inspect.isgeneratorfunction(function):
        return "is a generator, which would never begin; what wraps a hook is marked @hookimpl(wrapper=True)"
    return ""


def _unknown(hook: str) -> str:
    import difflib  # only a misspelt hook pays for it

    near = difflib.get_close_matches(hook, HOOKS, n=1, cutoff=0.5)
    return f"it implements {hook!r}, and there is no such hook{f'; did you mean {near[0]!r}?' if near else ''}"


def _argument_problems(item: Implemented) -> Iterator[str]:
    expected = list(inspect.signature(getattr(hookspecs, item.hook)).parameters)
    shown = f"{item.hook}({', '.join(expected)})"
    for name, parameter in item.signature.parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            yield f"its {item.hook!r} takes *{name}, which stays empty; name the arguments of {shown}"
        elif name in expected and parameter.default is not inspect.Parameter.empty:
            yield f"its {item.hook!r} has a default for {name!r}, which pluggy then does not pass; write it without"
        elif name not in expected and parameter.default is inspect.Parameter.empty:
            yield f"its {item.hook!r} asks for {name!r}, and the hook is {shown}"


def _role_problems(item: Implemented, declaration: Declaration) -> Iterator[str]:
    kind, hook, owner = declaration.kind, item.hook, HOOKS[item.hook].owner
    if item.wraps and kind == owner:
        yield f"it wraps {hook!r}, which the {kind} owns and has to answer itself"
    elif item.wraps and hook not in may_wrap(kind):
        yield f"it wraps {hook!r}, which a {kind} may not"
    elif item.wraps and hook not in declaration.wraps:
        yield f"it wraps {hook!r} and does not declare it; add it to wraps"
    elif not item.wraps and kind != owner:
        may = " and may only be wrapped" if hook in may_wrap(kind) else ""
        yield f"it answers {hook!r}, which belongs to the {owner}{may}"


def _missing(kind: type, known: list[Implemented], declaration: Declaration) -> Iterator[str]:
    answered = {item.hook for item in known if not item.wraps}
    wrapped = {item.hook for item in known if item.wraps}
    for hook, rule in HOOKS.items():
        if rule.owner == declaration.kind and hook not in answered | wrapped:
            yield f"it does not answer {hook!r}{_undecorated(kind, hook, 'hookimpl')}"
        elif hook in declaration.wraps and hook not in wrapped:
            yield f"it declares to wrap {hook!r} and does not{_undecorated(kind, hook, 'hookimpl(wrapper=True)')}"


def _undecorated(kind: type, hook: str, decorator: str) -> str:
    attribute: Any = inspect.getattr_static(kind, hook, None)
    return f": {kind.__name__}.{hook} lacks @{decorator}" if callable(attribute) else ""

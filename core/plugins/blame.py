"""Say in a traceback which plugin's hook an error comes from: a stranger's file name alone tells nobody whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, TracebackType

from torch import nn

from core.plan import Chosen, Plan
from core.plugins.base import Plugin
from core.plugins.binding import broken
from core.plugins.contract import implemented
from core.wording import told

WHOLE_RUN = "launch"
"""The hook that everything of a run is inside of, so that naming it would say nothing."""


def name_hook(error: BaseException, plan: Plan, plugins: Mapping[str, Plugin], module: nn.Module) -> BaseException:
    """Note on ``error`` the innermost hook that it came through, unless that was in the user's module again.

    Nothing is done for this while all is well; Python 3.10 has no notes and leaves it out.

    Returns:
        ``error``; a SystemExit by a hook's own code becomes an error, for it would end the program without a word.
    """
    if isinstance(error, KeyboardInterrupt):
        return error  # the user's wish, wherever it comes; it ends the program as Python does
    whose = _hooks_by_code(plan, plugins)
    hook: tuple[str, Chosen] | None = None
    own, package = False, ""
    for frame in _frames(error.__traceback__):
        if frame.f_code in whose:
            hook, package = whose[frame.f_code], _package(frame)
        elif hook and frame.f_locals.get("self") is module:
            hook = None
        own = hook is not None and _package(frame) == package
    if hook is None:
        return error
    name, chosen = hook
    if isinstance(error, SystemExit) and own:
        return broken(chosen, f"its hook {name!r}", told(error))
    where = f"{chosen.distribution} {chosen.version}"
    note = f"inside the hook {name!r} of {chosen.declaration.kind} {chosen.name!r} from {where}"
    if hasattr(error, "add_note") and note not in getattr(error, "__notes__", ()):
        error.add_note(note)
    return error


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _hooks_by_code(plan: Plan, plugins: Mapping[str, Plugin]) -> dict[CodeType, tuple[str, Chosen]]:
    return {
        item.code: (item.hook, chosen)
        for chosen in plan.chosen
        for item in implemented(type(plugins[chosen.declaration.kind]))
        if item.hook != WHOLE_RUN
    }


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next

"""Callbacks that installed packages bring by the entry-point group ``interlock.callbacks`` (torch-free).

They do nothing by being installed: ``Trainer(callbacks=["name"])`` takes one, and so does the environment variable
INTERLOCK_CALLBACKS, a list of names separated by commas, for every Trainer of a process. ``python -m core.callbacks``
lists them. An entry point names a Callback class, or a function without arguments that returns a callback or a list of
them; it is imported when it is taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from core.discovery import BLOCK_VARIABLE, OWN_DISTRIBUTION, PLUGINS_VARIABLE, PhaseError, load_object
from core.errors import DuplicatePlugin, PluginBroken, UnknownPlugin
from core.metadata import normalize, read_points
from core.spellings import fold
from core.wording import told

if TYPE_CHECKING:
    from core.callbacks.base import Callback

GROUP = "interlock.callbacks"
VARIABLE = "INTERLOCK_CALLBACKS"


class InstalledCallback(NamedTuple):
    """One entry point: what it is called, what it names, and which package brings it."""

    name: str
    value: str
    distribution: str
    version: str

    @property
    def on(self) -> bool:
        """Whether the environment variable takes it."""
        return any(_is_called(self, word) for word in _words(VARIABLE))


@cache
def _points() -> tuple[InstalledCallback, ...]:
    points, _ = read_points([GROUP])
    return tuple(sorted(InstalledCallback(p.name, p.value, p.distribution, p.version) for p in points))


def installed_callbacks() -> list[InstalledCallback]:
    """Return the callbacks that installed packages bring, without importing them.

    Those that INTERLOCK_PLUGINS and INTERLOCK_BLOCK turn off are left out.
    """
    if os.environ.get(PLUGINS_VARIABLE, "").strip().lower() == "builtin":
        return [item for item in _points() if normalize(item.distribution) == OWN_DISTRIBUTION]
    blocked = _words(BLOCK_VARIABLE)
    return [item for item in _points() if not any(_is_blocked(item, word) for word in blocked)]


def wanted_callbacks() -> list[str]:
    """Return the names that the environment variable takes."""
    return _words(VARIABLE)


def load_callbacks(name: str) -> list[Callback]:
    """Make the callbacks of the entry point ``name``, or ``distribution:name``.

    Raises:
        UnknownPlugin: when no package brings it.
        DuplicatePlugin: when several do.
        PluginBroken: when it cannot be imported or made, the cause chained.
    """
    item = _find(name)
    where = f"{item.distribution} {item.version}"
    try:
        made = load_object(item.value, "import")
    except PhaseError as error:
        raise PluginBroken("callback", name, distribution=where, phase=error.phase, reason=error.reason) from error
    try:
        made = made() if callable(made) else made
    except Exception as error:
        reason = told(error)
        raise PluginBroken("callback", name, distribution=where, phase="construction", reason=reason) from error
    callbacks: list[Any] = list(made) if isinstance(made, list | tuple) else [made]
    wrong = [each for each in callbacks if not callable(getattr(each, "on_train_start", None))]
    if wrong:
        reason = f"{item.value} makes a {type(wrong[0]).__name__}, which is no Callback"
        raise PluginBroken("callback", name, distribution=where, phase="construction", reason=reason)
    return callbacks


def _find(name: str) -> InstalledCallback:
    known = installed_callbacks()
    found = [item for item in known if _is_called(item, name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DuplicatePlugin("callback", name, [item.distribution for item in found])
    names = sorted({item.name for item in known})
    hint = f"a package has to bring it by the entry-point group {GROUP!r}; python -m core.callbacks lists them"
    raise UnknownPlugin("callback", name, known=names, nearest=get_close_matches(name, names), hint=hint)


def _is_called(item: InstalledCallback, word: str) -> bool:
    distribution, separator, name = word.rpartition(":")
    same = fold(item.name) == fold(name)
    return same and (not separator or normalize(item.distribution) == normalize(distribution))


def _is_blocked(item: InstalledCallback, word: str) -> bool:
    return _is_called(item, word) or normalize(item.distribution) == normalize(word)


def _words(variable: str) -> list[str]:
    return [word for word in (part.strip() for part in os.environ.get(variable, "").split(",")) if word]


def table(items: Iterable[InstalledCallback]) -> str:
    """Return a line for each callback, in columns."""
    rows = [("NAME", "FROM", "ON")]
    rows += [(item.name, f"{item.distribution} {item.version}", "yes" if item.on else "no") for item in items]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)

"""Find the installed plugins through entry points, one scan per process (torch-free).

Nothing here decides: each entry point becomes one :class:`Found`, with its declaration or with what went
wrong and in which phase, so that one bad package never hides the others.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import NamedTuple

from core.declarations import (
    ALL_KINDS,
    API,
    AcceleratorDeclaration,
    Availability,
    Declaration,
    EnvironmentDeclaration,
    Exclude,
    Kind,
    Need,
    Option,
    Package,
    PrecisionDeclaration,
    Replaces,
    StrategyDeclaration,
)
from core.errors import InvalidArgument, InvalidDeclaration, OtherAPI
from core.metadata import Point, normalize, read_points, required_by_extra
from core.spellings import fold
from core.wording import printable, shown, told

OWN_DISTRIBUTION = "interlock"
GROUPS: Mapping[str, Kind] = {
    "interlock.accelerators": "accelerator",
    "interlock.precisions": "precision",
    "interlock.strategies": "strategy",
    "interlock.environments": "environment",
}
_DECLARATION_TYPES: Mapping[Kind, type[Declaration]] = {
    "accelerator": AcceleratorDeclaration,
    "precision": PrecisionDeclaration,
    "strategy": StrategyDeclaration,
    "environment": EnvironmentDeclaration,
}
PLUGINS_VARIABLE = "INTERLOCK_PLUGINS"
"""``builtin`` leaves out every third-party plugin; ``all`` is as if it were not set."""
BLOCK_VARIABLE = "INTERLOCK_BLOCK"
"""Names, distributions or ``distribution:name``, separated by commas, that are left out."""

_PARTS = "|".join(part.__name__ for part in (Availability, Exclude, Need, Option, Package, Replaces))
_UNKNOWN_KEYWORD = re.compile(rf"({_PARTS})\.__new__\(\) got an unexpected keyword")
_LATER = f"it was written for another API than {API}, or a later release; upgrade {OWN_DISTRIBUTION}"
_REFERENCE = re.compile(r"\s*(?P<module>[\w.]+)\s*:\s*(?P<attribute>[\w.]+)\s*(\[(?P<extras>.*)\])?\s*\Z")


@dataclass(frozen=True)
class Failure:
    """Why a plugin has no declaration: the phase that failed (parse, import, declare, api) and the error."""

    phase: str
    reason: str
    error: BaseException | None = None


@dataclass(frozen=True)
class Found:
    """One entry point and what came of it: exactly one of ``declaration`` and ``failure`` is set."""

    kind: Kind
    name: str
    value: str
    distribution: str
    version: str
    declaration: Declaration | None = None
    failure: Failure | None = None

    @property
    def builtin(self) -> bool:
        """Whether it comes from our own distribution."""
        return normalize(self.distribution) == OWN_DISTRIBUTION


class Scan(NamedTuple):
    """What one look at the installed packages gave."""

    found: tuple[Found, ...]
    notes: tuple[str, ...] = ()
    """A line on each thing about the installed packages that people should know, though nothing failed."""
    turned_off: tuple[Found, ...] = ()
    """What the two variables leave out: neither imported nor found, but remembered for the error."""


def scan() -> tuple[Found, ...]:
    """Read the entry points of this process once and return every plugin, sorted by kind, name, distribution."""
    return scan_with_notes().found


def scan_with_notes() -> Scan:
    """As :func:`scan`, with what was passed over and turned off.

    Raises:
        InvalidArgument: when ``INTERLOCK_PLUGINS`` has a value that means nothing.
    """
    points, notes = read_points(GROUPS)
    found = [_found(point) for point in points]
    found.sort(key=lambda f: (ALL_KINDS.index(f.kind), f.name, f.distribution))
    if not any(item.builtin for item in found):
        notes.append(f"{OWN_DISTRIBUTION} itself is not installed, only on the path, so its own plugins are missing")
    off = _turned_off(found, notes)
    return Scan(tuple(map(_read, _without_twins(f for f in found if f not in off))), tuple(notes), tuple(off))


def _found(point: Point) -> Found:
    name, value, distribution, version = map(printable, point[1:])
    return Found(GROUPS[point.group], name, value, distribution, version)


def _turned_off(found: Sequence[Found], notes: list[str]) -> list[Found]:
    """Return what the user turned off: third parties as a whole, or single names and distributions."""
    which = os.environ.get(PLUGINS_VARIABLE, "").strip().lower()
    if which not in ("", "all", "builtin"):
        raise InvalidArgument(f"environment variable {PLUGINS_VARIABLE}={which!r} must be 'builtin' or 'all'")
    off = [item for item in found if which == "builtin" and not item.builtin]
    for word in filter(None, (part.strip() for part in os.environ.get(BLOCK_VARIABLE, "").split(","))):
        named = [item for item in found if _is_named(item, word)]
        if not named:
            notes.append(f"{BLOCK_VARIABLE} names {word!r}, and no installed plugin or distribution is called so")
        off += named
    return off


def _is_named(item: Found, word: str) -> bool:
    distribution, separator, name = word.rpartition(":")
    if separator:
        return normalize(item.distribution) == normalize(distribution) and fold(item.name) == fold(name)
    return fold(item.name) == fold(word) or normalize(item.distribution) == normalize(word)


def _without_twins(found: Iterable[Found]) -> Iterator[Found]:
    """Mark entry points of one distribution that have one name: nobody could say which of them is meant."""
    taken = list(found)
    counts = Counter((f.kind, normalize(f.distribution), fold(f.name)) for f in taken)
    for item in taken:
        twins = counts[item.kind, normalize(item.distribution), fold(item.name)] > 1
        reason = f"{item.distribution} has several entry points called {item.name!r}"
        yield replace(item, failure=Failure("parse", reason)) if twins else item


def _read(found: Found) -> Found:
    if found.failure is not None:
        return found
    try:
        return replace(found, declaration=_load(found))
    except PhaseError as problem:
        return replace(found, failure=Failure(problem.phase, problem.reason, problem.__cause__))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what was imported is looked at, and any of its attributes may be code
        return replace(found, failure=Failure("declare", told(error), error))


class PhaseError(Exception):
    """Carries the phase in which reading a plugin failed; never leaves the discovery and loading code."""

    def __init__(self, phase: str, reason: str) -> None:
        self.phase, self.reason = phase, reason
        super().__init__(f"{phase}: {reason}")


def load_object(reference: str, phase: str) -> object:
    """Import ``"module:attribute"``.

    Whatever the import raises counts as a failure, SystemExit too, since a plugin must not end the program
    that looks at it; KeyboardInterrupt alone passes.

    Raises:
        PhaseError: with the cause chained.
    """
    match = _REFERENCE.match(reference)
    if match is None:
        raise PhaseError("parse", f"{reference!r} must have the form 'module:attribute'")
    try:
        found: object = import_module(match["module"])
        for part in match["attribute"].split("."):
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except InvalidDeclaration as error:
        raise PhaseError("declare", printable("; ".join(error.problems))) from error
    except BaseException as error:
        raise PhaseError(phase, f"{told(error)}; {_LATER}" if _is_from_later(error) else told(error)) from error
    return found


def _is_from_later(error: BaseException) -> bool:
    """Tell whether a plugin asked for what a later Interlock may have: a name of the core, or a keyword of a part."""
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == __name__.partition(".")[0]
    return type(error) is TypeError and _UNKNOWN_KEYWORD.match(str(error)) is not None


def _other_api(api: int, found: Found) -> str:
    age, which = ("newer", OWN_DISTRIBUTION) if api > API else ("older", found.distribution)
    return f"written for the {age} API {shown(api)}, this is API {API}; upgrade {which}"


def _load(found: Found) -> Declaration:
    try:
        declaration = load_object(found.value, "import")
    except PhaseError as problem:
        cause = problem.__cause__
        if not isinstance(cause, OtherAPI):
            raise
        raise PhaseError("api", f"{_other_api(cause.api, found)} (it {cause.reason})") from cause
    wanted = _DECLARATION_TYPES[found.kind]
    # isinstance alone would believe what the object says it is
    if not (isinstance(declaration, wanted) and issubclass(type(declaration), wanted)):
        article = "an" if found.kind == "accelerator" else "a"
        held = f"{found.value} holds a {type(declaration).__name__}"
        raise PhaseError("declare", f"{held}; {article} {wanted.__name__} belongs there")
    if declaration.api != API:
        raise PhaseError("api", _other_api(declaration.api, found))
    declaration = _with_extras(_own(declaration, wanted), found)
    if fold(declaration.name) != fold(found.name):
        raise PhaseError("declare", f"its entry point is called {found.name!r}, its declaration {declaration.name!r}")
    return declaration


def _with_extras(declaration: Declaration, found: Found) -> Declaration:
    """Return the declaration with what the extras of its entry point require among its packages.

    ``name = module:DECLARATION [gpu]`` says that the plugin works where ``distribution[gpu]`` was installed.
    """
    match = _REFERENCE.match(found.value)
    extras = [word.strip() for word in (match["extras"] or "").split(",")] if match else []
    packages = [
        Package(name, versions, install=f'pip install "{found.distribution}[{extra}]"')
        for extra in filter(None, extras)
        for name, versions in required_by_extra(found.distribution, extra)
    ]
    return replace(declaration, packages=(*declaration.packages, *packages)) if packages else declaration


def _own(declaration: Declaration, wanted: type[Declaration]) -> Declaration:
    """Return the declaration made anew from its fields: one that answers alike however often it is asked.

    What was imported may be of a subclass whose attributes are code, or have been changed since it checked itself.
    """
    try:
        return wanted(**{each.name: getattr(declaration, each.name) for each in fields(wanted) if each.init})
    except InvalidDeclaration as error:
        raise PhaseError("declare", printable("; ".join(error.problems))) from error

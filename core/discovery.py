"""Find the installed plugins through entry points, one scan per process (torch-free).

Nothing here decides: each entry point becomes one :class:`Found`, with its declaration or with what went
wrong and in which phase, so that one bad package never hides the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

import importlib_metadata

from core.declarations import (
    API,
    KINDS,
    AcceleratorDeclaration,
    Declaration,
    Kind,
    PrecisionDeclaration,
    StrategyDeclaration,
)
from core.spellings import fold

OWN_DISTRIBUTION = "interlock"
GROUPS: Mapping[str, Kind] = {
    "interlock.accelerators": "accelerator",
    "interlock.precisions": "precision",
    "interlock.strategies": "strategy",
}
_DECLARATION_TYPES: Mapping[Kind, type[Declaration]] = {
    "accelerator": AcceleratorDeclaration,
    "precision": PrecisionDeclaration,
    "strategy": StrategyDeclaration,
}
PLUGINS_VARIABLE = "INTERLOCK_PLUGINS"
BLOCK_VARIABLE = "INTERLOCK_BLOCK"


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
        """Whether it comes from our own distribution; asked only where names collide."""
        return fold(self.distribution) == OWN_DISTRIBUTION


def scan() -> tuple[Found, ...]:
    """Read the entry points of this process once and return every plugin, sorted by kind, name, distribution."""
    points = [point for point in importlib_metadata.entry_points() if point.group in GROUPS]
    found = [_read(point) for point in _allowed(points)]
    return tuple(sorted(found, key=lambda f: (KINDS.index(f.kind), f.name, f.distribution)))


def _allowed(points: Iterable[importlib_metadata.EntryPoint]) -> Iterator[importlib_metadata.EntryPoint]:
    """Leave out what the user turned off: third parties as a whole, or single names and distributions."""
    only_own = os.environ.get(PLUGINS_VARIABLE, "").strip().lower() == "builtin"
    blocked = {fold(word) for word in os.environ.get(BLOCK_VARIABLE, "").split(",") if word.strip()}
    for point in points:
        distribution = fold(_distribution(point)[0])
        if only_own and distribution != OWN_DISTRIBUTION:
            continue
        if not blocked & {fold(point.name), distribution}:
            yield point


def _distribution(point: importlib_metadata.EntryPoint) -> tuple[str, str]:
    dist = point.dist
    return (dist.name, dist.version) if dist is not None else ("unknown", "0")


def _read(point: importlib_metadata.EntryPoint) -> Found:
    kind = GROUPS[point.group]
    found = Found(kind, point.name, point.value, *_distribution(point))
    try:
        return _with(found, declaration=_load(found))
    except PhaseError as problem:
        return _with(found, failure=Failure(problem.phase, problem.reason, problem.__cause__))


def _with(found: Found, **changes: object) -> Found:
    return Found(**{**found.__dict__, **changes})  # type: ignore[arg-type]


class PhaseError(Exception):
    """Carries the phase in which reading a plugin failed; never leaves the discovery and loading code."""

    def __init__(self, phase: str, reason: str) -> None:
        self.phase, self.reason = phase, reason
        super().__init__(f"{phase}: {reason}")


def load_object(reference: str, phase: str) -> object:
    """Import ``"module:attribute"``.

    SystemExit counts as a failure like any other, since a plugin must not end the program that looks at it;
    KeyboardInterrupt passes.

    Raises:
        PhaseError: with the cause chained.
    """
    module_name, separator, attribute = reference.partition(":")
    if not (module_name and separator and attribute):
        raise PhaseError("parse", f"{reference!r} must have the form 'module:attribute'")
    try:
        found: object = import_module(module_name.strip())
        for part in attribute.strip().split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise PhaseError(phase, f"{type(error).__name__}: {error}") from error
    return found


def _load(found: Found) -> Declaration:
    declaration = load_object(found.value, "import")
    wanted = _DECLARATION_TYPES[found.kind]
    if not isinstance(declaration, wanted):
        raise PhaseError("declare", f"{found.value} is a {type(declaration).__name__}, not a {wanted.__name__}")
    if declaration.api != API:
        age = "newer" if declaration.api > API else "older"
        fix = "upgrade interlock" if declaration.api > API else f"upgrade {found.distribution}"
        raise PhaseError("api", f"written for the {age} API {declaration.api}, this is API {API}; {fix}")
    if fold(declaration.name) != fold(found.name):
        raise PhaseError("declare", f"its entry point is called {found.name!r}, its declaration {declaration.name!r}")
    return declaration

"""What the matrix holds: one cell for each accelerator, precision and strategy, with its state and its reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from core.availability import reasons_against
from core.cli.common import OPEN
from core.declarations import KINDS, Kind
from core.registry import Registry
from core.rules import Combination, violations

SYMBOLS = {"valid": "✓", "unavailable": "○", "refused": "✕"}


class Cell(NamedTuple):
    """One combination: its state, why it is not valid here, and what it asks of the request or the module."""

    combination: Combination
    state: str
    reasons: tuple[str, ...]
    conditions: tuple[str, ...]


def matrix(registry: Registry, within: dict[Kind, str]) -> Iterator[Cell]:
    """Yield every combination of sound plugins, the plugins alone held against each other."""
    against = {
        (kind, name): tuple(f"{kind} {name!r}: {reason}" for reason in reasons_against(declaration))
        for kind in KINDS
        for name, declaration in registry.sound(kind)
    }
    for trio in registry.parties(within):
        combination = Combination(*(name for name, _ in trio))
        parties = [party for _, party in trio]
        unmet = violations(parties)
        broken = violations(parties, OPEN) if unmet else []
        # an unmet need that a request or a module may still meet is no refusal, but worth knowing
        conditions = tuple(f"{v.party} needs {v.wanted}: {v.reason}" for v in unmet if v not in broken)
        missing = tuple(reason for pair in zip(KINDS, combination, strict=True) for reason in against[pair])
        if broken:
            yield Cell(combination, "refused", tuple(map(str, broken)), conditions)
        else:
            yield Cell(combination, "unavailable" if missing else "valid", missing, conditions)


def by_accelerator(cells: Iterable[Cell]) -> dict[str, dict[str, dict[str, Cell]]]:
    """Return the cells as accelerator -> strategy -> precision, in their order."""
    tables: dict[str, dict[str, dict[str, Cell]]] = {}
    for cell in cells:
        names = cell.combination
        tables.setdefault(names.accelerator, {}).setdefault(names.strategy, {})[names.precision] = cell
    return tables

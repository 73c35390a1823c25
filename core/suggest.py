"""The nearest combinations that work, for the end of an error (torch-free)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core.declarations import KINDS, Kind
from core.rules import Combination, Party

if TYPE_CHECKING:
    from core.registry import Registry

SUGGESTIONS = 3
CHANGES: tuple[frozenset[Kind], ...] = tuple(
    frozenset(kinds)
    for kinds in (
        ("precision",),
        ("strategy",),
        ("accelerator",),
        ("precision", "strategy"),
        ("precision", "accelerator"),
        ("strategy", "accelerator"),
        KINDS,
    )
)
"""What a suggestion may change, the cheapest change first."""


def suggest(
    registry: Registry, asked: Combination, party: Party, works: Callable[[Combination], bool] | None = None
) -> list[Combination]:
    """Return the nearest valid combinations that can run here: fewest changes, precision before strategy before
    accelerator, then the more preferred.

    Args:
        registry: where the plugins come from.
        asked: what does not work; never suggested.
        party: what the request states; it narrows what is tried.
        works: the last word on a combination; by default, whether its plugins can run here.
    """
    works = works or registry.can_run
    found: list[Combination] = []
    tried = {asked}
    for changed in CHANGES:
        keep = {kind: name for kind, name in zip(KINDS, asked, strict=True) if kind not in changed}
        for combination in _preferred_first(registry, party, keep):
            if combination in tried:
                continue
            tried.add(combination)
            if works(combination):
                found.append(combination)
            if len(found) == SUGGESTIONS:
                return found
    return found


def _preferred_first(registry: Registry, party: Party, keep: dict[Kind, str]) -> list[Combination]:
    rank = {(kind, name): -d.preference for kind in KINDS for name, d in registry.sound(kind)}
    combinations = registry.valid_combinations(party, keep)
    return sorted(combinations, key=lambda c: sum(rank[kind, name] for kind, name in zip(KINDS, c, strict=True)))

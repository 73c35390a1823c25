"""The one rule: every need is met by a provide, and nothing excluded is present (torch-free).

:func:`violations` is the whole check. It knows tokens and parties and no plugin's name, so a plugin that
a stranger wrote yesterday is held to the same rule as the built-ins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from core.declarations import Declaration, Exclude, Need
from core.vocabulary import ASKED


@dataclass(frozen=True)
class Party:
    """One that states tokens: a plugin, the request, or the module. ``label`` is how messages call it."""

    label: str
    provides: frozenset[str] = frozenset()
    needs: tuple[Need, ...] = ()
    excludes: tuple[Exclude, ...] = ()
    asks: bool = False
    """Whether its needs count as asked for, which other parties may exclude as ``asked.X``."""


class Violation(NamedTuple):
    """One broken rule, with both sides of it."""

    party: str
    rule: str
    token: str
    reason: str
    found: tuple[str, ...]
    """For a need: the labels that could have met it. For an exclusion: the labels that brought the token."""

    def __str__(self) -> str:
        if self.rule == "needs":
            return f"{self.party} needs {self.token}, which none of {', '.join(self.found)} provides: {self.reason}"
        if self.rule == "disagrees":
            return f"{self.party} disagrees about {self.token}: {self.reason}"
        return f"{self.party} excludes {self.token}, which {', '.join(self.found)} brings: {self.reason}"


class Combination(NamedTuple):
    """Three plugins by name, printed as the arguments that would choose them."""

    accelerator: str
    precision: str
    strategy: str

    def __str__(self) -> str:
        return f"accelerator={self.accelerator!r}, precision={self.precision!r}, strategy={self.strategy!r}"


def party_of(declaration: Declaration) -> Party:
    """Return the party that a plugin's declaration speaks for."""
    return Party(
        f"{declaration.kind} {declaration.name!r}", declaration.provided, declaration.needs, declaration.excludes
    )


def present_tokens(parties: Iterable[Party]) -> set[str]:
    """Return every token that some party provides, and ``asked.X`` for each need of those that ask."""
    present: set[str] = set()
    for party in parties:
        present |= party.provides
        if party.asks:
            present |= {ASKED + alternative for need in party.needs for alternative in need.alternatives}
    return present


def violations(parties: Sequence[Party]) -> list[Violation]:
    """Return every broken rule among ``parties``, in their order; empty when the combination is valid."""
    present = present_tokens(parties)
    broken: list[Violation] = []
    for party in parties:
        for need in party.needs:
            if present.isdisjoint(need.alternatives):
                others = tuple(other.label for other in parties if other is not party)
                broken.append(Violation(party.label, "needs", need.token, need.reason, others))
        for exclusion in party.excludes:
            if exclusion.token in present:
                found = tuple(p.label for p in parties if exclusion.token in present_tokens([p]))
                broken.append(Violation(party.label, "excludes", exclusion.token, exclusion.reason, found))
    return broken

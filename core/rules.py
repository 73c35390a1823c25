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
    """For a need: who could have met it. For an exclusion: who brought the token. Else: who disagrees."""

    @property
    def wanted(self) -> str:
        """The token, its alternatives joined by "or"."""
        return self.token.replace(" | ", " or ")

    @property
    def fact(self) -> str:
        """What is broken, with both sides of it."""
        if self.rule == "disagrees":
            return f"{self.party} and {' and '.join(self.found)} disagree about {self.token}"
        if self.rule == "needs":
            return f"{self.party} needs {self.wanted}, which {_none_of(self.found)} provides"
        who = " and ".join(self.found)
        if self.token.startswith(ASKED):
            return f"{self.party} excludes that {self.token.removeprefix(ASKED)} is asked for, as {who} does"
        return f"{self.party} excludes {self.token}, which {who} brings"

    def __str__(self) -> str:
        return f"{self.fact}: {self.reason}"


def _none_of(labels: Sequence[str]) -> str:
    return f"none of {', '.join(labels)}" if labels else "nobody"


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


def violations(parties: Sequence[Party], unknown: tuple[str, ...] = ()) -> list[Violation]:
    """Return every broken rule among ``parties``, in their order; empty when the combination is valid.

    ``unknown`` holds prefixes of tokens that a party which is not known yet may bring, such as ``"module."``
    before there is a module: a need that one of them would meet is left open.
    """
    present = present_tokens(parties)
    broken: list[Violation] = []
    for party in parties:
        for need in party.needs:
            if not _is_met(need, present, unknown):
                others = tuple(other.label for other in parties if other is not party)
                broken.append(Violation(party.label, "needs", need.token, need.reason, others))
        for exclusion in party.excludes:
            if exclusion.token in present:
                found = tuple(p.label for p in parties if exclusion.token in present_tokens([p]))
                broken.append(Violation(party.label, "excludes", exclusion.token, exclusion.reason, found))
    return broken


def _is_met(need: Need, present: set[str], unknown: tuple[str, ...]) -> bool:
    alternatives = need.alternatives
    if not present.isdisjoint(alternatives):
        return True
    return bool(unknown) and any(alternative.startswith(unknown) for alternative in alternatives)

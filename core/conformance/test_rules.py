"""Needs and exclusions, each held against a party set in which it alone decides."""

from __future__ import annotations

from core.conformance.checks import check, lacks
from core.declarations import Declaration, Exclude, Kind, Need
from core.rules import Party, Violation, party_of, violations


def judged(declaration: Declaration, present: set[str]) -> list[Violation]:
    """Return the rules of ``declaration`` that a party with the tokens ``present`` breaks."""
    return violations([party_of(declaration), Party("a made-up party", frozenset(present))])


def wanted_by(declaration: Declaration) -> set[str]:
    """Return one token for each need, of its alternatives one that is not excluded if there is such."""
    excluded = {exclusion.token for exclusion in declaration.excludes}
    return {
        next((token for token in need.alternatives if token not in excluded), need.alternatives[0])
        for need in declaration.needs
    }


@check()
def test_what_it_needs_is_enough(kind: Kind, declaration: Declaration) -> None:
    """A combination that provides every need and brings nothing excluded is accepted."""
    broken = judged(declaration, wanted_by(declaration))
    if broken:
        lacks("; ".join(map(str, broken)))


@check()
def test_unmet_need_is_refused(kind: Kind, declaration: Declaration, rule: Need) -> None:
    """A need that nothing meets is refused, with its reason."""
    present = {token for token in wanted_by(declaration) if token not in rule.alternatives}
    _expect(declaration, present, rule.token, rule.reason)


@check()
def test_present_exclusion_is_refused(kind: Kind, declaration: Declaration, rule: Exclude) -> None:
    """Something excluded that is present is refused, with its reason."""
    _expect(declaration, wanted_by(declaration) | {rule.token}, rule.token, rule.reason)


def _expect(declaration: Declaration, present: set[str], token: str, reason: str) -> None:
    broken = judged(declaration, present)
    if not any(violation.token == token and reason in str(violation) for violation in broken):
        own = " (it provides that itself)" if token in declaration.provided else ""
        lacks(f"{token!r} decides nothing{own}; refused were: {'; '.join(map(str, broken)) or 'nothing'}")

"""``list``: the installed plugins, what they work with, and whether they can run here."""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple

from core.availability import reasons_against
from core.cli.common import OPEN, add_names, given_names, load_registry, print_table
from core.declarations import ALL_KINDS, KINDS, Kind
from core.discovery import Found
from core.registry import Registry
from core.rules import violations

EXAMPLES = """\
examples:
  python -m core.registry list
  python -m core.registry list --kind strategy --accelerator cuda
  python -m core.registry list --json
  python -m core.registry list --strict    exits 1 when a plugin is broken or two claim one name
"""
_MANY = 4

Partners = dict[Kind, list[str]]


class Row(NamedTuple):
    """One plugin and what is known about it here."""

    item: Found
    reference: str
    status: str
    reason: str
    works_with: Partners


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``list``."""
    parser.add_argument("--kind", choices=ALL_KINDS, help="only plugins of this kind")
    add_names(parser, "only plugins that work with this {kind}")
    parser.add_argument("--json", action="store_true", help="print a list of objects instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a plugin is broken or in conflict")


def run(args: argparse.Namespace) -> int:
    """Print the plugins; always 0 unless ``--strict``."""
    registry = load_registry()
    given = given_names(args)
    chosen = _compatible(registry, given) if given else None
    pairs = _pairs(registry)
    rows = [
        _row(registry, item, pairs)
        for kind in ALL_KINDS
        if args.kind in (None, kind)
        for item in registry.of_kind(kind)
        if chosen is None or (kind, registry.reference(item)) in chosen
    ]
    if args.json:
        import json

        print(json.dumps([_as_json(row) for row in rows], indent=2))
    else:
        _print(registry, rows)
    for note in registry.notes:
        print(f"note: {note}", file=sys.stderr)
    return int(args.strict and any(row.status in ("broken", "conflict") for row in rows))


def _compatible(registry: Registry, given: dict[Kind, str]) -> set[tuple[Kind, str]]:
    """Return the plugins that stand in a valid combination with the given ones."""
    return {
        (kind, reference)
        for trio in registry.parties(given)
        if not violations([party for _, party in trio], OPEN)
        for kind, (reference, _) in zip(KINDS, trio, strict=True)
    }


Pairs = dict[tuple[Kind, Kind], set[tuple[str, str]]]


def _pairs(registry: Registry) -> Pairs:
    """Return every two names that some valid combination holds, by their kinds, in both orders."""
    by_precision: set[tuple[str, str]] = set()
    by_strategy: set[tuple[str, str]] = set()
    without_hardware: set[tuple[str, str]] = set()
    for (a, accelerator), (p, precision), (s, strategy) in registry.parties({}):
        # most combinations tell nothing new, and need not be judged
        if (a, p) in by_precision and (a, s) in by_strategy and (p, s) in without_hardware:
            continue
        if not violations([accelerator, precision, strategy], OPEN):
            by_precision.add((a, p))
            by_strategy.add((a, s))
            without_hardware.add((p, s))
    first, second, third = KINDS
    one_way: Pairs = {(first, second): by_precision, (first, third): by_strategy, (second, third): without_hardware}
    back = {(right, left): {(y, x) for x, y in names} for (left, right), names in one_way.items()}
    return {**one_way, **back}


def _row(registry: Registry, item: Found, pairs: Pairs) -> Row:
    name = registry.reference(item)
    works_with: Partners = {
        kind: sorted(other for me, other in pairs[item.kind, kind] if me == name and item.declaration)
        for kind in KINDS
        if item.kind in KINDS and kind != item.kind
    }
    return Row(item, name, *_status(registry, item), works_with)


def _status(registry: Registry, item: Found) -> tuple[str, str]:
    """Return one of ready, unavailable, broken and conflict, and the reason; ready has one for a lost alias."""
    if item.failure is not None:
        return "broken", f"{item.failure.phase}: {item.failure.reason}"
    rivals = registry.rivals(item)
    if rivals:
        others = ", ".join(f"{other.distribution} {other.version}" for other in rivals)
        return "conflict", f"{others} claims this name too; choose it as {registry.reference(item)!r}"
    assert item.declaration is not None, "a plugin without a failure has a declaration"
    reasons = reasons_against(item.declaration)
    if reasons:
        return "unavailable", "; ".join(reasons)
    lost = [
        f"alias {alias!r} does not choose it, since {_owners(others)} claims it"
        for alias, others in registry.lost_aliases(item).items()
    ]
    return "ready", "; ".join(lost)


def _owners(others: list[Found]) -> str:
    return " and ".join(f"{other.name!r} of {other.distribution}" for other in others)


def _as_json(row: Row) -> dict[str, object]:
    item, declaration = row.item, row.item.declaration
    return {
        "kind": item.kind,
        "name": item.name,
        "aliases": list(declaration.aliases) if declaration else [],
        "summary": declaration.summary if declaration else "",
        "distribution": item.distribution,
        "version": item.version,
        "status": row.status,
        "reason": row.reason,
        "provides": list(declaration.provides) if declaration else [],
        "needs": [need._asdict() for need in declaration.needs] if declaration else [],
        "excludes": [exclusion._asdict() for exclusion in declaration.excludes] if declaration else [],
        "works_with": row.works_with,
    }


def _print(registry: Registry, rows: list[Row]) -> None:
    totals = {kind: len(registry.sound(kind)) for kind in KINDS}
    print_table(
        ["KIND", "NAME", "ALIASES", "FROM", "WORKS WITH", "STATUS"],
        [
            [
                row.item.kind,
                row.item.name,
                ", ".join(row.item.declaration.aliases) if row.item.declaration else "",
                f"{row.item.distribution} {row.item.version}",
                _in_short(row, totals),
                f"{row.status}: {row.reason}" if row.reason else row.status,
            ]
            for row in rows
        ],
    )


def _in_short(row: Row, totals: dict[Kind, int]) -> str:
    """Name the accelerators a plugin works with; for an accelerator, count the others."""
    partners = row.works_with
    if all(len(names) == totals[kind] for kind, names in partners.items()):
        return "all" if any(partners.values()) else ""
    if "accelerator" not in partners:
        return ", ".join(f"{len(names)}/{totals[kind]} {_PLURAL[kind]}" for kind, names in partners.items())
    names = partners["accelerator"]
    if len(names) == totals["accelerator"]:
        return "all accelerators"
    return ", ".join(names) if len(names) <= _MANY else f"{len(names)}/{totals['accelerator']} accelerators"


_PLURAL: dict[Kind, str] = {"accelerator": "accelerators", "precision": "precisions", "strategy": "strategies"}

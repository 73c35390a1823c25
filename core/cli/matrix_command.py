"""``matrix``: every accelerator x precision x strategy, and why where it is not."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from core.cli.common import add_names, given_names, load_registry, print_table
from core.cli.matrix_cells import SYMBOLS, Cell, by_accelerator, matrix
from core.declarations import KINDS, Kind
from core.registry import Registry

EXAMPLES = """\
examples:
  python -m core.registry matrix
  python -m core.registry matrix --strategy ddp --format markdown
  python -m core.registry matrix --format html > matrix.html

valid        every need is met and nothing excluded is present
refused      a rule is broken, whatever the machine
unavailable  valid, but a package or the hardware is missing here
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix``."""
    formats = ("table", "markdown", "json", "html")
    parser.add_argument("--format", choices=formats, default="table", help="default: table")
    add_names(parser, "only this {kind}")


def run(args: argparse.Namespace) -> int:
    """Print the matrix."""
    registry = load_registry()
    cells = list(matrix(registry, given_names(args)))
    if args.format == "html":
        from core.cli.matrix_page import page

        print(page(cells, _summaries(registry)))
    elif args.format == "json":
        import json

        print(json.dumps([_as_json(cell) for cell in cells], indent=2))
    elif args.format == "markdown":
        print("\n".join(_markdown(cells)))
    else:
        print_table(["ACCELERATOR", "PRECISION", "STRATEGY", "STATE"], [_as_row(cell) for cell in cells])
    return 0


def _summaries(registry: Registry) -> dict[tuple[Kind, str], str]:
    return {(kind, name): declaration.summary for kind in KINDS for name, declaration in registry.sound(kind)}


def _as_row(cell: Cell) -> list[str]:
    return [*cell.combination, ": ".join(filter(None, [cell.state, "; ".join(cell.reasons)]))]


def _as_json(cell: Cell) -> dict[str, object]:
    return {
        **cell.combination._asdict(),
        "state": cell.state,
        "reasons": list(cell.reasons),
        "conditions": list(cell.conditions),
    }


def _markdown(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield one table per accelerator, with the reasons as numbered notes below."""
    notes: dict[str, int] = {}
    for accelerator, rows in by_accelerator(cells).items():
        precisions = list(next(iter(rows.values())))
        yield f"### {accelerator}\n"
        yield f"| strategy | {' | '.join(precisions)} |"
        yield f"| --- |{' --- |' * len(precisions)}"
        for strategy, row in rows.items():
            marks = [_mark(cell, notes) for cell in row.values()]
            yield f"| {strategy} | {' | '.join(marks)} |"
        yield ""
    yield f"{SYMBOLS['valid']} valid, {SYMBOLS['unavailable']} unavailable here, {SYMBOLS['refused']} refused"
    yield from (f"{'' if number > 1 else chr(10)}{number}. {reason}" for reason, number in notes.items())


def _mark(cell: Cell, notes: dict[str, int]) -> str:
    numbers = [notes.setdefault(reason, len(notes) + 1) for reason in cell.reasons]
    return f"{SYMBOLS[cell.state]} {' '.join(f'[{n}]' for n in numbers)}".rstrip()

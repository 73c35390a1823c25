"""What the commands share: the registry, the narrowing options, and plain text tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from core.declarations import KINDS, Kind
from core.registry import Registry, get_registry
from core.vocabulary import MODULE_BRINGS, REQUEST_BRINGS
from core.wording import printable

OPEN = (*MODULE_BRINGS, *REQUEST_BRINGS)
"""Where only plugins are held against each other, what a request or a module would bring is left open."""

WIDEST = 60
"""Characters of a cell that widens its whole column: one plugin's name must not push the others from the screen."""


def load_registry() -> Registry:
    """Return the registry. What a plugin prints while it is imported must not end up in the middle of JSON."""
    with redirect_stdout(sys.stderr):
        return get_registry()


def add_names(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add ``--accelerator``, ``--precision`` and ``--strategy``."""
    for kind in KINDS:
        parser.add_argument(f"--{kind}", metavar="NAME", help=meaning.format(kind=kind))


def given_names(args: argparse.Namespace) -> dict[Kind, str]:
    """Return the names that were given, by kind."""
    return {kind: name for kind in KINDS if (name := getattr(args, kind)) is not None}


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns; the last one is left ragged, so that long reasons do not widen every line."""
    shortened = [[*(printable(cell, WIDEST) for cell in row[:-1]), row[-1]] for row in rows]
    table = [list(header), *(["-" if not cell else " ".join(cell.split()) for cell in row] for row in shortened)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header) - 1)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]))

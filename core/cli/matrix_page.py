"""The matrix as one web page that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from core.cli.matrix_cells import SYMBOLS, Cell, by_accelerator
from core.cli.matrix_template import TEMPLATE

if TYPE_CHECKING:
    from core.declarations import Kind

Summaries = dict[tuple["Kind", str], str]


def page(cells: Sequence[Cell], summaries: Summaries) -> str:
    """Return the page. Cells hold numbers into one list of texts, since most reasons come many times."""
    texts: dict[str, int] = {}
    sections = "\n".join(
        _section(accelerator, rows, summaries, texts) for accelerator, rows in by_accelerator(cells).items()
    )
    counts = Counter(cell.state for cell in cells)
    legend = "\n".join(
        f'<button class="key {state}" data-state="{state}" aria-pressed="true" title="{escape(MEANINGS[state])}">'
        f"<i>{symbol}</i> {state} <b>{counts[state]}</b></button>"
        for state, symbol in SYMBOLS.items()
    )
    # "</" would end the script element inside a reason
    data = json.dumps({"texts": list(texts), "meanings": MEANINGS}).replace("</", "<\\/")
    filled = (
        TEMPLATE.replace("<!--LEGEND-->", legend)
        .replace("<!--SECTIONS-->", sections)
        .replace("/*DATA*/", data)
        .replace("<!--TOTAL-->", str(len(cells)))
    )
    # a terminal redirected into a file may have any encoding; plain ASCII survives them all
    return filled.encode("ascii", "xmlcharrefreplace").decode("ascii")


MEANINGS = {
    "valid": "every need is met and it can run here",
    "unavailable": "valid, but a package or the hardware is missing here",
    "refused": "a rule is broken, whatever the machine",
}


def _section(accelerator: str, rows: dict[str, dict[str, Cell]], summaries: Summaries, texts: dict[str, int]) -> str:
    head = "".join(
        f'<th scope="col" data-name="{escape(name)}" title="{escape(summaries["precision", name])}">'
        f"<span>{escape(name)}</span></th>"
        for name in next(iter(rows.values()))
    )
    body = "\n".join(
        f'<tr data-name="{escape(strategy)}"><th scope="row" title="{escape(summaries["strategy", strategy])}">'
        f"{escape(strategy)}</th>{''.join(_cell(cell, texts) for cell in row.values())}</tr>"
        for strategy, row in rows.items()
    )
    return (
        f'<section data-name="{escape(accelerator)}"><h2>{escape(accelerator)} '
        f"<small>{escape(summaries['accelerator', accelerator])}</small></h2>"
        f'<div class="scroll"><table><thead><tr><td></td>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
        "</section>"
    )


def _cell(cell: Cell, texts: dict[str, int]) -> str:
    names = cell.combination
    label = escape(f"{names.accelerator}, {names.precision}, {names.strategy}: {cell.state}")
    return (
        f'<td><button class="cell {cell.state}" aria-label="{label}" data-p="{escape(names.precision)}" '
        f'data-r="{_numbers(cell.reasons, texts)}" data-c="{_numbers(cell.conditions, texts)}">'
        f"{SYMBOLS[cell.state]}</button></td>"
    )


def _numbers(lines: Sequence[str], texts: dict[str, int]) -> str:
    return " ".join(str(texts.setdefault(line, len(texts))) for line in lines)

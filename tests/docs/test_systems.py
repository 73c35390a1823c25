"""The page of systems names, for each row of what the refactor held, the test that shows it; those tests exist."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = list(csv.DictReader((ROOT / "docs" / "systems.csv").open()))
WANTED = [
    *(f"H{n}" for n in range(4)),
    *(f"P{n}" for n in range(1, 8)),
    "S0",
    "S00",
    *(f"S{n}" for n in range(1, 14)),
    *(f"E{n}" for n in range(3)),
    *(f"C{n}" for n in range(1, 35)),
    *(f"T{n}" for n in range(1, 5)),
]


def test_every_row_of_the_refactor_is_there():
    """Accelerators, precisions, strategies, environments, connector rules and tuner have a row each, in order."""
    assert [row["row"] for row in ROWS] == WANTED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["row"])
def test_the_test_that_shows_a_row_exists(row):
    """The file is in the suite, and so are the function and the case where they are named."""
    path, function, case = re.fullmatch(r"([\w/.]+?)(?:::(\w+))?(?:\[(.+)\])?", row["shown by"]).groups()
    text = (ROOT / path).read_text()
    assert f"def {function or 'test_'}" in text
    assert case is None or f'"{case}": ' in text

"""The page of systems names, for each row of what the refactor held, the test that shows it; those tests exist."""

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = list(csv.DictReader((ROOT / "docs" / "systems.csv").open()))
WANTED = {
    *(f"H{n}" for n in range(4)),
    *(f"P{n}" for n in range(1, 8)),
    *(f"S{n}" for n in range(14)),
    "S00",
    *(f"E{n}" for n in range(3)),
    "C1-C34",
    *(f"T{n}" for n in range(1, 5)),
}


def test_every_row_of_the_refactor_is_there():
    """Accelerators, precisions, strategies, environments, connector rules and tuner have a row each."""
    assert {row["row"] for row in ROWS} == WANTED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["row"])
def test_the_test_that_shows_a_row_exists(row):
    """The file, and the function where one is named, is in the suite."""
    path, _, function = row["shown by"].partition("::")
    target = ROOT / path
    assert target.exists()
    if target.is_dir():
        assert list(target.glob("test_*.py"))
    if function:
        assert f"def {function}(" in target.read_text()

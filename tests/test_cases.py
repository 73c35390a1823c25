"""Faults that people met elsewhere each have a test here; the list names it, and it exists."""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = list(csv.DictReader((ROOT / "tests" / "cases.csv").open()))
CASES = [*range(1, 5), *range(6, 10), *range(11, 16), 18, 19, *range(21, 27), *range(30, 34), 35, 38, *range(41, 45)]


def test_every_case_is_there():
    """Each of the cases that were gathered has a row or several, in order."""
    assert list(dict.fromkeys(int(row["case"]) for row in ROWS)) == CASES


def test_the_tests_that_show_them_exist():
    """Each file that a row names is in the suite, and so is the function."""
    for row in ROWS:
        path, _, function = row["shown by"].partition("::")
        text = (ROOT / path).read_text()
        assert re.search(rf"^def {function or 'test_'}", text, re.MULTILINE), row["shown by"]
        assert not function or f"def {function}(" in text, row["shown by"]

"""The names of checkpoint files: values in braces, and a number behind a name that is taken."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

_FIELD = re.compile(r"\{(?P<name>[^{}:]+)(?::(?P<form>[^{}]*))?\}")


def fill_template(
    template: str, values: Mapping[str, float], *, insert_names: bool = True, equals: str = "="
) -> tuple[str, list[str]]:
    """Return ``template`` with its fields filled in, and the names of fields that have no value.

    A field is a name of a value and a format, such as ``{val/loss:.2f}``. With ``insert_names`` it becomes
    ``val_loss=0.25``: a slash in the name of a value opens no folder. A value that is not known is written as ``nan``.
    """
    unknown: list[str] = []

    def fill(match: re.Match[str]) -> str:
        name, form = match["name"], match["form"] or ""
        if name not in values:
            unknown.append(name)
        text = _formatted(values.get(name, math.nan), form)
        return f"{name.replace('/', '_')}{equals}{text}" if insert_names else text

    return _FIELD.sub(fill, template), unknown


def _formatted(value: float, form: str) -> str:
    if not math.isfinite(value):
        return str(value)
    if form.endswith("d"):
        value = round(value)  # metrics are floats, and a count among them is still wanted as a whole number
    return format(value, form)


def free_name(make: Callable[[int | None], str], taken: Callable[[str], bool], first: int = 1) -> str:
    """Return ``make(None)``, or ``make(number)`` with the first number, from ``first`` on, that is not taken."""
    name, number = make(None), first
    while taken(name):
        name, number = make(number), number + 1
    return name

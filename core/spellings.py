"""How arguments may be spelled, in one table each (torch-free).

Devices:

=============================  =======================================================
``"auto"``                     every device the accelerator has; one where there is no fixed number
``2`` or ``"2"``               two devices (a string that is one number is a count, never an index)
``-1`` or ``"-1"``             every device; refused where there is no fixed number
``[0, 2]``, ``"0,2"``          these devices, by index
``[1]``, ``"1,"``              the one device with this index
=============================  =======================================================

Names of accelerators, precisions and strategies compare without case, and ``-`` equals ``_``. Precision
also takes an integer (``16`` is ``"16"``), since YAML turns ``precision: 16`` into one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core.errors import InvalidArgument, WrongType

AUTO = "auto"
_ACCEPTED = 'accepted: "auto", a count such as 2 or "2", -1 for all, a list of indices such as [0, 1] or "0,1"'


class Devices(NamedTuple):
    """A parsed request for devices: a ``count`` (-1: all, None: auto), or ``indices``."""

    count: int | None = None  # type: ignore[assignment]  # hides tuple.count, which means nothing here
    indices: tuple[int, ...] | None = None

    def __str__(self) -> str:
        if self.indices is not None:
            return str(list(self.indices))
        return AUTO if self.count is None else str(self.count)


def parse_devices(value: object) -> Devices:
    """Read ``devices`` in any form of the table above.

    Raises:
        WrongType: for a value of another type; ``True`` and ``1.5`` are not counts.
        InvalidArgument: for 0, an empty list, a negative number other than -1, or an index given twice.
    """
    if isinstance(value, bool) or not isinstance(value, int | str | list | tuple):
        raise WrongType(f"devices must be an int, a string or a list of ints, not {_typed(value)}\n  {_ACCEPTED}")
    if isinstance(value, str):
        return _devices_from_text(value)
    if isinstance(value, int):
        return _count(value, value)
    wrong = [item for item in value if isinstance(item, bool) or not isinstance(item, int)]
    if wrong:
        raise WrongType(f"devices {value!r} must hold whole numbers only, not {_typed(wrong[0])}\n  {_ACCEPTED}")
    return _indices(list(value), value)


def _devices_from_text(text: str) -> Devices:
    stripped = text.strip()
    if stripped.lower() == AUTO:
        return Devices()
    parts = [part.strip() for part in stripped.split(",")]
    is_list = len(parts) > 1
    if is_list and not parts[-1]:
        parts.pop()
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        raise InvalidArgument(f"devices {text!r} is not a number or a list of numbers\n  {_ACCEPTED}") from None
    return _indices(numbers, text) if is_list else _count(numbers[0], text)


def _count(number: int, given: object) -> Devices:
    if number == -1 or number >= 1:
        return Devices(count=number)
    raise InvalidArgument(f"devices {given!r} asks for {number} devices; at least 1 is needed\n  {_ACCEPTED}")


def _indices(numbers: list[int], given: object) -> Devices:
    if not numbers:
        raise InvalidArgument(f"devices {given!r} names no device; at least 1 is needed\n  {_ACCEPTED}")
    negative = [n for n in numbers if n < 0]
    if negative:
        raise InvalidArgument(f"devices {given!r} holds the index {negative[0]}; indices start at 0\n  {_ACCEPTED}")
    if len(set(numbers)) != len(numbers):
        twice = next(n for n in numbers if numbers.count(n) > 1)
        raise InvalidArgument(f"devices {given!r} names device {twice} more than once\n  {_ACCEPTED}")
    return Devices(indices=tuple(numbers))


def parse_name(kind: str, value: object) -> str:
    """Read the name of a plugin; None means :data:`AUTO`, an integer is taken for a precision only.

    Raises:
        WrongType: for any other type.
        InvalidArgument: for an empty string.
    """
    if value is None:
        return AUTO
    if kind == "precision" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        also = " or an int" if kind == "precision" else " or a configured plugin"
        raise WrongType(
            f"{kind} must be a name (a string){also}, not {_typed(value)}\n"
            f"  hint: python -m core.registry list --kind {kind}"
        )
    if not value.strip():
        raise InvalidArgument(f"{kind} is an empty string; leave it out for {AUTO!r}")
    return value.strip()


def fold(name: str) -> str:
    """Return the form in which two spellings of one name are equal."""
    return name.strip().lower().replace("_", "-")


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to ``limit`` known names that look like ``name``, closest first, in their own spelling."""
    import difflib  # only an unknown name pays for it

    by_fold = {fold(candidate): candidate for candidate in known}
    return [by_fold[match] for match in difflib.get_close_matches(fold(name), by_fold, n=limit, cutoff=0.6)]


def _typed(value: object) -> str:
    return f"{type(value).__name__} {value!r}"

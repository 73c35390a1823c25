"""Checks of the Trainer's arguments, one clear error each (torch-free)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta

from core.errors import InvalidArgument, WrongType


def whole(name: str, value: object, *, least: int) -> int:
    """Return ``value`` if it is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongType(f"{name} must be a whole number, not {type(value).__name__} {value!r}")
    if value < least:
        raise InvalidArgument(f"{name}={value} must be at least {least}")
    return value


def flag(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise WrongType(f"{name} must be True or False, not {type(value).__name__} {value!r}")
    return value


def limit(name: str, value: object) -> int | float:
    """Return a limit of batches: a whole number of batches, or a fraction from 0.0 to 1.0; None means all."""
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongType(f"{name} must be a number of batches or a fraction, not {type(value).__name__} {value!r}")
    if not value >= 0 or (isinstance(value, float) and value > 1):
        raise InvalidArgument(f"{name}={value} must be a whole number of at least 0, or a fraction from 0.0 to 1.0")
    return value


def clip_value(name: str, value: object) -> float | None:
    """Return the value to clip at; None and 0 turn clipping off."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongType(f"{name} must be a number, not {type(value).__name__} {value!r}")
    if not value >= 0:
        raise InvalidArgument(f"{name}={value} must be at least 0; 0 turns clipping off")
    return float(value) or None


def choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        raise InvalidArgument(f"{name}={value!r} must be one of {', '.join(map(repr, choices))}")
    return str(value)


def folder(name: str, value: object) -> str:
    """Return a folder's path as a string; None is the current folder."""
    if not isinstance(value, str | os.PathLike | None):
        raise WrongType(f"{name} must be a path, not {type(value).__name__} {value!r}")
    return os.getcwd() if value is None else str(os.fspath(value))


def duration(name: str, value: object) -> timedelta | None:
    """Return a time given as a timedelta, its keywords in a dict, or ``"DD:HH:MM:SS"``."""
    if value is None or isinstance(value, timedelta):
        return value
    if isinstance(value, Mapping):
        try:
            return timedelta(**value)
        except TypeError as error:
            raise InvalidArgument(f"{name}={value!r} has a key that timedelta does not know: {error}") from None
    if not isinstance(value, str):
        raise WrongType(f"{name} must be a timedelta, a dict or 'DD:HH:MM:SS', not {type(value).__name__} {value!r}")
    parts = value.split(":")
    if len(parts) != 4 or not all(part.isdigit() for part in parts):
        raise InvalidArgument(f"{name}={value!r} must have the form 'DD:HH:MM:SS'")
    days, hours, minutes, seconds = map(int, parts)
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def validation_interval(name: str, value: object) -> int | float:
    """Return ``val_check_interval``: a number of batches from 1, or a fraction of an epoch up to 1.0."""
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongType(f"{name} must be a number of batches or a fraction, not {type(value).__name__} {value!r}")
    if not value > 0 or (isinstance(value, float) and value > 1):
        raise InvalidArgument(f"{name}={value} must be a whole number of at least 1, or a fraction above 0.0 up to 1.0")
    return value


def dev_run(name: str, value: object) -> int:
    """Return the number of batches of a quick try: True is 1, False none."""
    if isinstance(value, bool):
        return int(value)
    return whole(name, value, least=0)


def batches_within(limit: int | float, length: int | None, name: str) -> int | None:
    """Return how many batches a limit leaves of ``length``; for an unknown length the limit itself, None if it is 1.0.

    Raises:
        InvalidArgument: for a fraction of a loader that does not say its length, or of which it leaves no batch.
    """
    if length is None:
        if isinstance(limit, float):
            if limit not in (0.0, 1.0):
                raise InvalidArgument(f"{name}={limit} is a fraction of a loader without a length; give a whole number")
            return None if limit else 0
        return limit
    if not isinstance(limit, float):
        return min(limit, length)
    if limit and length and not int(length * limit):
        raise InvalidArgument(
            f"{name}={limit} leaves nothing of {length} batches; give at least {1 / length:.3g}, or 0"
        )
    return int(length * limit)

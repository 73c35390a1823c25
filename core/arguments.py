"""Checks of the Trainer's arguments, one clear error each (torch-free)."""

from __future__ import annotations

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
    if value < 0 or (isinstance(value, float) and value > 1):
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


def batches_within(limit: int | float, length: int | None, name: str) -> int | None:
    """Return how many batches a limit leaves of ``length``; for an unknown length the limit itself, None if it is 1.0.

    Raises:
        InvalidArgument: for a fraction of a loader that does not say its length.
    """
    if length is None:
        if isinstance(limit, float):
            if limit not in (0.0, 1.0):
                raise InvalidArgument(f"{name}={limit} is a fraction of a loader without a length; give a whole number")
            return None if limit else 0
        return limit
    return int(length * limit) if isinstance(limit, float) else min(limit, length)

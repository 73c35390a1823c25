"""How a check says what it is about, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import pytest

from core.declarations import KINDS, Kind

if TYPE_CHECKING:
    from core.conformance.setup import Setup

F = TypeVar("F", bound=Callable[..., Any])
ATTRIBUTE = "interlock_check"
LEFT = "not looked at: "


class Check(NamedTuple):
    """What a check is about.

    It is done where a plugin of one of the kinds in ``about`` was named, and where ``claims``, if it is set, is a
    token that the plan provides. With ``several`` there is nothing to see in a run of one process. ``hindrance``
    says why there is nothing to see in a given setup; "" when there is.
    """

    about: tuple[Kind, ...]
    claims: str = ""
    several: bool = False
    hindrance: Callable[[Setup], str] | None = None


def check(
    *about: Kind, claims: str = "", several: bool = False, hindrance: Callable[[Setup], str] | None = None
) -> Callable[[F], F]:
    """Mark a test as a check, see :class:`Check`; without a kind it is about all three."""

    def mark(function: F) -> F:
        setattr(function, ATTRIBUTE, Check(about or KINDS, claims, several, hindrance))
        return function

    return mark


def lacks(what: str) -> NoReturn:
    """End a check: the plugin does not do what it claims."""
    pytest.fail(what, pytrace=False)


def leave(why: str) -> NoReturn:
    """End a check that turns out to have nothing to look at."""
    pytest.skip(LEFT + why)


def cannot_judge(why: str) -> NoReturn:
    """End a check without a verdict, because another check has failed that this one rests on."""
    pytest.skip(why)

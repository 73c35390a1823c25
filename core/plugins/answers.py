"""Look at what a plugin's rare hooks return, so that a wrong answer is told where it was given and by whom."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from core.hookspecs import Shard, WrappedModel
from core.wording import shown

# those that are called once per run, loader or checkpoint: the loop's own hooks are called as they are
ANSWERS: Mapping[str, tuple[type, ...]] = {
    "setup_device": (torch.device,),
    "wrap_model": (WrappedModel,),
    "shard_data": (Shard,),
    "gather_state": (dict, type(None)),
}


def checked(
    hook: str, function: Callable[..., Any], wanted: tuple[type, ...], refuse: Callable[[str], Exception]
) -> Callable[..., Any]:
    """Return ``function``, which answers ``hook``; where it answers with another type, what ``refuse`` makes is raised.

    Args:
        hook: the hook's name.
        function: what answers it.
        wanted: the types that its answer may have.
        refuse: takes what is wrong, and returns the error.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        answer = function(*args, **kwargs)
        if not isinstance(answer, wanted):
            raise refuse(wrong_answer(hook, answer, wanted))
        return answer

    return call


def wrong_answer(hook: str, answer: object, wanted: tuple[type, ...]) -> str:
    """Say which answer belongs to ``hook``, and which one was given."""
    names = " or ".join("None" if each is type(None) else each.__name__ for each in wanted)
    return f"its {hook!r} returned {shown(answer)}, and {names} belongs there"

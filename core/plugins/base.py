"""What all three kinds of implementation share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

    from core.plan import Plan
    from core.plugins.binding import Hooks
    from core.session import Ranks

F = TypeVar("F", bound=Callable[..., Any])


def does_nothing(function: F) -> F:
    """Mark a hook implementation that changes nothing, so that the loop may leave its call out."""
    function.does_nothing = True  # type: ignore[attr-defined]
    return function


class Plugin:
    """One plugin of one run. Options are keywords of ``__init__``, kept as attributes of the same names.

    The attributes below are set before the first hook is called; ``ranks`` and ``device`` inside the
    processes of the run only.
    """

    plan: Plan
    hooks: Hooks
    ranks: Ranks
    device: torch.device

    def state_dict(self) -> dict[str, Any]:
        """Return this plugin's own state for a checkpoint, in plain types and tensors; {} for none.

        Every rank is asked, in the same order, so ranks may exchange here; what rank 0 returns is kept, and given to
        all of them on resume.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""

    def __getstate__(self) -> dict[str, Any]:
        # what a run sets belongs to its process; a configured instance travels to processes that are started for it
        return {name: value for name, value in self.__dict__.items() if name not in ("hooks", "ranks", "device")}

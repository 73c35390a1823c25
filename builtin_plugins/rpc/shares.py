"""One rank's share of an optimizer: the parameters that live there, with the settings of the whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from builtin_plugins.pipeline.averaging import clip_by_value, gradients_of, square_sum
from core.data.nested import detach_to_host

Located = tuple[str, str]
"""The name of a part, and of a parameter in it."""


class Share:
    """An optimizer over the parameters of one rank.

    Args:
        kind: the class of the whole optimizer.
        groups: its parameter groups, parameters given as (number in the whole, place), those of other ranks left out.
        defaults: its settings.
        find: returns the parameter at a place.
    """

    def __init__(
        self,
        kind: type[torch.optim.Optimizer],
        groups: list[dict[str, Any]],
        defaults: Mapping[str, Any],
        find: Callable[[Located], Tensor],
    ) -> None:
        self._numbers = [number for group in groups for number, _ in group["params"]]
        found = [{**group, "params": [find(place) for _, place in group["params"]]} for group in groups]
        accepted = inspect.signature(kind).parameters
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values())
        # some optimizers keep defaults that their constructor does not take
        settings: Any = {name: value for name, value in defaults.items() if takes_any or name in accepted}
        self.optimizer = kind(found, **settings)

    def square_sum(self) -> float:
        """Return the sum of the squares of all gradients."""
        return square_sum(gradients_of(self.optimizer))

    def step(self, settings: list[dict[str, Any]], scale: float, limit: float | None) -> None:
        """Update the parameters and drop their gradients.

        Args:
            settings: of each group now; a scheduler may have changed them.
            scale: what gradients are multiplied by first.
            limit: the largest absolute value of a gradient, or None.
        """
        for group, now in zip(self.optimizer.param_groups, settings, strict=True):
            group.update(now)
        gradients = gradients_of(self.optimizer)
        if scale != 1.0:
            for gradient in gradients:
                gradient.mul_(scale)
        if limit is not None:
            clip_by_value(gradients, limit)
        self.optimizer.step()
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def state(self) -> dict[int, Any]:
        """Return the state by the numbers that the parameters have in the whole optimizer."""
        state = self.optimizer.state_dict()["state"]
        return {self._numbers[own]: detach_to_host(value) for own, value in state.items()}

    def load(self, state: Mapping[int, Any]) -> None:
        """Load what :meth:`state` of any layout returned for these parameters."""
        own = {place: state[number] for place, number in enumerate(self._numbers) if number in state}
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": own})

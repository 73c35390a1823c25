"""Optimizers whose parameters live on several ranks: the user's own here, a share of it on each other rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch.optim import Optimizer

from builtin_plugins.pipeline.state import indexed_parameters
from builtin_plugins.rpc.handles import ask_all


class Location(NamedTuple):
    """Where the parameter behind a stand-in lives."""

    worker: str
    part: str
    name: str


class RemoteShares:
    """The shares of one optimizer on other ranks.

    Args:
        optimizer: the user's, over parameters of this rank and stand-ins.
        key: what its shares are called.
        places: where the parameters behind the stand-ins live, by the stand-ins' ids.
        timeout: seconds that a request may take.
    """

    def __init__(self, optimizer: Optimizer, key: str, places: Mapping[int, Location], timeout: float) -> None:
        self.optimizer, self.key, self._timeout = optimizer, key, timeout
        located = [places.get(id(parameter)) for parameter in indexed_parameters(optimizer)]
        self.workers = sorted({place.worker for place in located if place is not None})
        self._numbers = {
            worker: {number for number, place in enumerate(located) if place is not None and place.worker == worker}
            for worker in self.workers
        }
        kind, defaults = type(optimizer), dict(optimizer.defaults)
        requests = []
        for worker in self.workers:
            groups, number = [], 0
            for group in optimizer.param_groups:
                own = []
                for parameter in group["params"]:
                    place = places.get(id(parameter))
                    if place is not None and place.worker == worker:
                        own.append((number, (place.part, place.name)))
                    number += 1
                groups.append({**_settings(group), "params": own})
            requests.append((worker, ("share", key, kind, groups, defaults)))
        ask_all(requests, timeout)

    def square_sum(self) -> float:
        """Return the sum of the squares of the gradients in all shares."""
        return float(sum(self._ask("square_sum")))

    def step(self, scale: float = 1.0, limit: float | None = None) -> None:
        """Clip and update on all ranks, with the settings that the user's optimizer has now."""
        self._ask("step", [_settings(group) for group in self.optimizer.param_groups], scale, limit)

    def state(self) -> list[dict[int, Any]]:
        """Return the optimizer state of each share, by the numbers of the parameters."""
        return self._ask("share_state")

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load what is saved for the parameters of each share."""
        requests = []
        for worker in self.workers:
            own = {number: state for number, state in saved["state"].items() if number in self._numbers[worker]}
            requests.append((worker, ("load_share", self.key, own)))
        ask_all(requests, self._timeout)

    def _ask(self, what: str, *arguments: Any) -> list[Any]:
        return ask_all([(worker, (what, self.key, *arguments)) for worker in self.workers], self._timeout)


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}

"""The fewest settings that keep a request's plugins from working, for the end of an error (torch-free)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from core.spellings import Devices

if TYPE_CHECKING:
    from core.request import Request

MOST_AT_ONCE = 3
"""So many settings are changed together at most: a longer list is no help."""


class Easing(NamedTuple):
    """One setting as it would have to be written, and the request that has it."""

    setting: str
    apply: Callable[[Request], Request]


def ease(request: Request, works: Callable[[Request], bool], limit: int = 3) -> list[str]:
    """Return settings with which the same request works, each as it is written; the fewest changes first.

    Args:
        request: what does not work.
        works: the last word on a request.
        limit: how many answers are enough.
    """
    easings = list(_easings(request))
    for size in range(1, MOST_AT_ONCE + 1):
        found = [
            ", ".join(easing.setting for easing in several)
            for several in combinations(easings, size)
            if works(reduce(lambda changed, easing: easing.apply(changed), several, request))
        ]
        if found:
            return found[:limit]
    return []


def _easings(request: Request) -> Iterator[Easing]:
    """Yield what could be changed, what is nearest to the request first."""
    devices, ranks = request.devices, request.environment.ranks
    if devices.indices is not None:
        yield _devices(Devices(count=len(devices.indices)))
    if ranks is not None:
        yield _devices(Devices(count=ranks.local_world_size))
        yield _nodes(max(1, ranks.world_size // ranks.local_world_size))
    features = request.features
    if features.sync_batchnorm:
        yield _feature("sync_batchnorm", False)
    if features.benchmark:
        yield _feature("benchmark", False)
    if features.gradient_clip_val:
        yield _feature("gradient_clip_algorithm", "value" if features.gradient_clip_algorithm == "norm" else "norm")
        yield _feature("gradient_clip_val", None)
    if features.accumulate_grad_batches > 1:
        yield _feature("accumulate_grad_batches", 1)
    if devices.indices is None and devices.count != 1:
        yield _devices(Devices(count=1))
    if request.num_nodes > 1 and ranks is None:
        yield _nodes(1)


def _devices(devices: Devices) -> Easing:
    return Easing(f"devices={devices}", lambda request: replace(request, devices=devices))


def _nodes(count: int) -> Easing:
    return Easing(f"num_nodes={count}", lambda request: replace(request, num_nodes=count))


def _feature(name: str, value: Any) -> Easing:
    def apply(request: Request) -> Request:
        return replace(request, features=replace(request.features, **{name: value}))

    return Easing(f"{name}={value!r}", apply)

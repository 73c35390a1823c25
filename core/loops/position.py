"""Where in the data an epoch stands, so that a resumed run reads on at the exact sample.

The order of an epoch follows from the random states at its start. A checkpoint keeps that state beside the
one at the time of saving: resuming goes back to the first, draws the order again, passes over the batches
that were done, and then takes the second, as if nothing had happened in between. A loader that keeps its own
position (torchdata's StatefulDataLoader, whose workers have state too) is asked for it instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DistributedSampler

from core.data.stream import length_of, read
from core.seed import get_rng_state, set_rng_state


class RandomStates(NamedTuple):
    """The state of every generator of this process, and of those that the loader's samplers own."""

    process: dict[str, Any]
    loader: list[torch.Tensor]


class LoaderPosition:
    """The position in one training loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._generators, self._samplers = _find_parts(loader)
        self._epoch_start: RandomStates | None = None
        self._resume_with: RandomStates | None = None
        # a length is needed: without one, batches are read ahead, and the loader's position is ahead of the run's
        methods = (getattr(loader, "state_dict", None), getattr(loader, "load_state_dict", None))
        self._keeps_position = all(map(callable, methods)) and length_of(loader) is not None
        self._loader_state: dict[str, Any] | None = None

    def _now(self) -> RandomStates:
        return RandomStates(get_rng_state(), [generator.get_state() for generator in self._generators])

    def _go_to(self, states: RandomStates) -> None:
        set_rng_state(states.process)
        for generator, state in zip(self._generators, states.loader, strict=False):
            generator.set_state(state)

    def begin(self, done: int) -> Iterator[Any]:
        """Return the batches of the epoch after the first ``done``."""
        resumed, self._resume_with = self._resume_with, None
        if not done or resumed is None:
            self._epoch_start = self._now()
            return read(self._loader, done)
        if self._loader_state is not None:
            self._loader.load_state_dict(self._loader_state)
            self._loader_state = None
            rest: Iterator[Any] = iter(self._loader)
            set_rng_state(resumed.process)
            return rest
        assert self._epoch_start is not None, "a checkpoint inside an epoch holds the states at its start"
        self._go_to(self._epoch_start)
        batches = read(self._loader, done)
        set_rng_state(resumed.process)
        return batches

    def restore_random_state(self) -> None:
        """Take the random states from the checkpoint, if one was loaded; called when set-up is over."""
        if self._resume_with is not None:
            self._go_to(self._resume_with)

    def state_dict(self, inside: bool) -> dict[str, Any]:
        """Return this rank's position and random states; ``inside`` says whether an epoch has begun and not ended."""
        start = self._epoch_start
        return {
            "now": self._now()._asdict(),
            "epoch_start": start._asdict() if inside and start is not None else None,
            "sampler_seeds": [sampler.seed for sampler in self._samplers],
            "loader": self._loader.state_dict() if inside and self._keeps_position else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned on this rank."""
        self._resume_with = RandomStates(**state["now"])
        self._epoch_start = RandomStates(**state["epoch_start"]) if state["epoch_start"] is not None else None
        self._loader_state = state["loader"] if self._keeps_position else None
        for sampler, seed in zip(self._samplers, state["sampler_seeds"], strict=False):
            sampler.seed = seed


def _find_parts(loader: Any) -> tuple[list[torch.Generator], list[DistributedSampler[Any]]]:
    """Return the generators that the order of ``loader`` is drawn with, and its distributed samplers, each once."""
    generators: dict[int, torch.Generator] = {}
    samplers: dict[int, DistributedSampler[Any]] = {}
    for one in getattr(loader, "flattened", [loader]):  # a combined loader has several
        batch_sampler = getattr(one, "batch_sampler", None)
        for part in (one, getattr(one, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)):
            generator = getattr(part, "generator", None)
            if isinstance(generator, torch.Generator):
                generators[id(generator)] = generator
            if isinstance(part, DistributedSampler):
                samplers[id(part)] = part
    return list(generators.values()), list(samplers.values())

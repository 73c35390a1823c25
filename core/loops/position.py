"""Where in the data an epoch stands, so that a resumed run reads on at the exact sample.

The order of an epoch follows from the random state at its start. A checkpoint keeps that state beside the
one at the time of saving: resuming goes back to the first, draws the order again, passes over the batches
that were done, and then takes the second, as if nothing had happened in between. A loader that keeps its own
position (torchdata's StatefulDataLoader, whose workers have state too) is asked for it instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from core.data.stream import length_of, read
from core.seed import get_rng_state, set_rng_state


class LoaderPosition:
    """The position in one training loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._epoch_start: torch.Tensor | None = None
        self._generator_start: torch.Tensor | None = None
        self._resume_with: dict[str, Any] | None = None
        # a length is needed: without one, batches are read ahead, and the loader's position is ahead of the run's
        methods = (getattr(loader, "state_dict", None), getattr(loader, "load_state_dict", None))
        self._keeps_position = all(map(callable, methods)) and length_of(loader) is not None
        self._loader_state: dict[str, Any] | None = None

    @property
    def _generator(self) -> torch.Generator | None:
        sampler = getattr(self._loader, "sampler", None)
        generator = getattr(self._loader, "generator", None) or getattr(sampler, "generator", None)
        return generator if isinstance(generator, torch.Generator) else None

    @property
    def _distributed_sampler(self) -> DistributedSampler[Any] | None:
        sampler = getattr(self._loader, "sampler", None)
        return sampler if isinstance(sampler, DistributedSampler) else None

    def begin(self, done: int) -> Iterator[Any]:
        """Return the batches of the epoch after the first ``done``."""
        resumed, self._resume_with = self._resume_with, None
        generator = self._generator
        if not done or resumed is None:
            self._epoch_start = torch.get_rng_state()
            self._generator_start = generator.get_state() if generator is not None else None
            return read(self._loader, done)
        if self._loader_state is not None:
            self._loader.load_state_dict(self._loader_state)
            self._loader_state = None
            rest: Iterator[Any] = iter(self._loader)
            set_rng_state(resumed)
            return rest
        assert self._epoch_start is not None, "a checkpoint inside an epoch holds the state at its start"
        torch.set_rng_state(self._epoch_start)
        if generator is not None and self._generator_start is not None:
            generator.set_state(self._generator_start)
        batches = read(self._loader, done)
        set_rng_state(resumed)
        return batches

    def restore_random_state(self) -> None:
        """Take this process's random state from the checkpoint, if one was loaded; called when set-up is over."""
        if self._resume_with is not None:
            set_rng_state(self._resume_with)
            generator = self._generator
            if generator is not None and "generator" in self._resume_with:
                generator.set_state(self._resume_with["generator"])

    def state_dict(self, inside: bool) -> dict[str, Any]:
        """Return this rank's position and random state; ``inside`` says whether an epoch has begun and not ended."""
        generator, sampler = self._generator, self._distributed_sampler
        random_state = get_rng_state()
        if generator is not None:
            random_state["generator"] = generator.get_state()
        return {
            "random_state": random_state,
            "epoch_start": self._epoch_start,
            "generator_start": self._generator_start,
            "sampler_seed": sampler.seed if sampler is not None else None,
            "loader": self._loader.state_dict() if inside and self._keeps_position else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned on this rank."""
        self._resume_with = state["random_state"]
        self._epoch_start = state["epoch_start"]
        self._generator_start = state["generator_start"]
        self._loader_state = state.get("loader") if self._keeps_position else None
        sampler = self._distributed_sampler
        if sampler is not None and state["sampler_seed"] is not None:
            sampler.seed = state["sampler_seed"]

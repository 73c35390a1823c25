"""Several training loaders at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader

from core.arguments import choice
from core.data.stream import length_of

Mode = Literal["max_size_cycle", "min_size", "max_size", "sequential"]
MODES: tuple[Mode, ...] = ("max_size_cycle", "min_size", "max_size", "sequential")


class CombinedLoader:
    """Gives batches of several loaders together, in the structure in which the loaders were given.

    Args:
        loaders: a dict, list or tuple of loaders.
        mode: ``"max_size_cycle"``: as long as the longest, shorter ones start again; ``"min_size"``: as long as the
            shortest; ``"max_size"``: as long as the longest, with None in place of what is used up; ``"sequential"``:
            one loader after the other, as ``(batch, batch_idx, dataloader_idx)``; a training step gets the batch.
    """

    def __init__(self, loaders: Any, mode: Mode = "min_size") -> None:
        self.mode: Mode = choice("mode", mode, MODES)  # type: ignore[assignment]  # one of MODES
        self.loaders = loaders

    @property
    def parts(self) -> list[Any]:
        """The loaders in a list; a combination within the combination is one of them."""
        return list(self.loaders.values()) if isinstance(self.loaders, Mapping) else list(self.loaders)

    @property
    def flattened(self) -> list[Any]:
        """All loaders in a list, those of combinations within the combination too."""
        return [one for part in self.parts for one in getattr(part, "flattened", [part])]

    def each(self, change: Callable[[Any], Any]) -> CombinedLoader:
        """Return the same combination of what ``change`` makes of each loader."""
        made = [part.each(change) if isinstance(part, CombinedLoader) else change(part) for part in self.parts]
        return type(self)(self._shaped(made), self.mode)

    def _shaped(self, items: list[Any]) -> Any:
        if isinstance(self.loaders, Mapping):
            return dict(zip(self.loaders, items, strict=True))
        if hasattr(self.loaders, "_fields"):  # a named tuple
            return type(self.loaders)(*items)
        return type(self.loaders)(items)

    def __len__(self) -> int:
        lengths = [length_of(loader) for loader in self.parts]
        known = [length for length in lengths if length is not None]
        if self.mode == "min_size" and known:
            return min(known)
        if len(known) < len(lengths):
            raise TypeError("a loader has no length")
        return sum(known) if self.mode == "sequential" else max(known)

    def set_epoch(self, epoch: int) -> None:
        """Tell every loader which epoch begins."""
        from core.data.sharding import set_epoch

        for loader in self.flattened:
            set_epoch(loader, epoch)

    def __iter__(self) -> Iterator[Any]:
        seeds = _seeds()
        if self.mode == "sequential":
            for number, loader in enumerate(self.parts):
                for index, batch in enumerate(_started(loader, next(seeds)) if number else loader):
                    yield batch, index, number
            return
        yield from self._side_by_side(seeds)

    def _side_by_side(self, seeds: Iterator[int]) -> Iterator[Any]:
        loaders = self.parts
        iterators = [iter(loader) for loader in loaders]
        used_up = [False] * len(loaders)
        while True:
            batches: list[Any] = []
            for number, iterator in enumerate(iterators):
                batch = next(iterator, _END)
                if batch is _END:
                    used_up[number] = True
                    if self.mode == "min_size" or all(used_up):
                        return
                    batch = None
                    if self.mode == "max_size_cycle":
                        iterators[number] = _started(loaders[number], next(seeds))
                        batch = next(iterators[number], None)
                batches.append(batch)
            yield self._shaped(batches)


def _seeds() -> Iterator[int]:
    """Return seeds that follow from the random state of the moment, which stays as it is."""
    generator = torch.Generator()
    generator.set_state(torch.get_rng_state())
    return iter(lambda: int(torch.empty((), dtype=torch.int64).random_(generator=generator)), None)


def _started(loader: Any, seed: int) -> Iterator[Any]:
    """Begin to read ``loader`` in the middle of an epoch, in an order that follows from ``seed`` alone.

    Drawn from the random numbers that training uses as well, the order would be another one where a resumed epoch
    passes over the batches that were done.
    """
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        batches = iter(loader)
        first = list(islice(batches, 1))  # samplers draw their order when the first batch is asked for
    finally:
        torch.set_rng_state(state)
    return chain(first, batches)


_END = object()


class InTurn(CombinedLoader):
    """A sequential combination as training reads it: batches alone."""

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch, _, _ in super().__iter__())


def combine(given: Any, mode: Mode = "max_size_cycle") -> Any:
    """Return a :class:`CombinedLoader` for a collection of loaders, and anything else as it is.

    A dict is one always, for nobody trains on its keys; a list is one where it holds a loader.
    """
    if _is_foreign(given):
        return CombinedLoader(given.iterables, given._mode)
    if isinstance(given, Mapping):
        return CombinedLoader({name: combine(item, mode) for name, item in given.items()}, mode)
    if isinstance(given, list | tuple) and any(map(_is_loader, given)):
        combined = CombinedLoader(given, mode)
        combined.loaders = combined._shaped([combine(item, mode) for item in given])
        return combined if len(given) > 1 else combined.parts[0]
    return given


def _is_loader(item: Any) -> bool:
    if isinstance(item, Mapping):
        return any(map(_is_loader, item.values()))
    if isinstance(item, list | tuple):
        return any(map(_is_loader, item))
    return isinstance(item, DataLoader | CombinedLoader) or _is_foreign(item)


def _is_foreign(item: Any) -> bool:
    """Tell whether this is a CombinedLoader of another framework, which gives more than batches."""
    return type(item).__name__ == "CombinedLoader" and hasattr(item, "iterables") and hasattr(item, "_mode")

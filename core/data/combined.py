"""Several training loaders at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

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
            one loader after the other, as ``(batch, batch_idx, dataloader_idx)``.
    """

    def __init__(self, loaders: Any, mode: Mode = "min_size") -> None:
        self.mode = choice("mode", mode, MODES)
        self.loaders = loaders

    @property
    def flattened(self) -> list[Any]:
        """The loaders in a list."""
        return list(self.loaders.values()) if isinstance(self.loaders, Mapping) else list(self.loaders)

    def replaced(self, loaders: list[Any]) -> CombinedLoader:
        """Return the same combination of other loaders, given in a list."""
        return CombinedLoader(self._shaped(loaders), self.mode)  # type: ignore[arg-type]  # checked when it was made

    def _shaped(self, items: list[Any]) -> Any:
        if isinstance(self.loaders, Mapping):
            return dict(zip(self.loaders, items, strict=True))
        return type(self.loaders)(items)

    def __len__(self) -> int:
        lengths = [length_of(loader) for loader in self.flattened]
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
        if self.mode == "sequential":
            for number, loader in enumerate(self.flattened):
                for index, batch in enumerate(loader):
                    yield batch, index, number
            return
        yield from self._side_by_side()

    def _side_by_side(self) -> Iterator[Any]:
        loaders = self.flattened
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
                        iterators[number] = iter(loaders[number])
                        batch = next(iterators[number], None)
                batches.append(batch)
            yield self._shaped(batches)


_END = object()


def combine(given: Any, mode: Mode = "max_size_cycle") -> Any:
    """Return a :class:`CombinedLoader` for a collection of DataLoaders, and anything else as it is."""
    items = list(given.values()) if isinstance(given, Mapping) else given if isinstance(given, list | tuple) else []
    if items and all(isinstance(item, DataLoader | CombinedLoader) for item in items):
        return CombinedLoader(given, mode) if len(items) > 1 or isinstance(given, Mapping) else items[0]
    return given

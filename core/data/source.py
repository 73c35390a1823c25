"""Where the loaders of a run come from: the call, a data module, or the module itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from core.data.combined import CombinedLoader, InTurn, combine
from core.data.sharding import shard_loader, with_sampler, with_worker_seed
from core.errors import InterlockError, WrongType
from core.seed import sampler_seed, seeds_workers
from core.userhooks import overridden

if TYPE_CHECKING:
    from core.loops.run import Run
    from core.loops.training import TrainingLoop

METHODS = {
    "train": "train_dataloader",
    "validation": "val_dataloader",
    "test": "test_dataloader",
    "predict": "predict_dataloader",
}


@dataclass
class DataSource:
    """The loaders of one run, by what they are for.

    Args:
        given: those that the call was given, by what they are for; None for those it was not.
        datamodule: an object with ``train_dataloader`` and the like, or None.
    """

    given: dict[str, Any]
    datamodule: Any = None
    run: Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": None}

    def has(self, what: str, module: object) -> bool:
        """Tell whether there are loaders for ``what``."""
        return self.given.get(what) is not None or self._maker(what, module) is not None

    def _maker(self, what: str, module: object) -> Callable[[], Any] | None:
        name = METHODS[what]
        if self.datamodule is not None:
            own = overridden(self.datamodule, name)
            if own is not None:
                return own
        return overridden(module, name)

    def refuse_no_loaders(self, names: Mapping[str, str]) -> None:
        """Refuse what the call gave in place of loaders; ``names`` are those of its arguments, by what they are for.

        Raises:
            WrongType: naming the argument.
        """
        for what, given in self.given.items():
            if given is not None:
                refuse_no_loader(names[what], combine(given))

    def _raw(self, what: str) -> Any:
        assert self.run is not None, "asked inside a run only"
        given = self.given.get(what)
        if given is not None:
            return given
        maker = self._maker(what, self.run.module)
        made = None if maker is None else maker()
        if made is not None:
            refuse_no_loader(f"what {METHODS[what]} returns", combine(made))
        return made

    def training(self) -> Any:
        """Return this rank's training loader.

        Raises:
            InterlockError: when there is none.
        """
        raw = self._raw("train")
        if raw is None:
            raise InterlockError("fit has no training data: pass train_dataloaders, or write train_dataloader()")
        loader = combine(raw)
        if isinstance(loader, CombinedLoader) and loader.mode == "sequential":
            loader = InTurn(loader.loaders, loader.mode)
        if self.run is not None and self.run.trainer.overfit_batches:
            loader = each(loader, _in_order)
        return each(loader, lambda one: self._sharded(one, train=True, name="train_dataloaders"))

    def evaluation(self, what: str) -> list[Any]:
        """Return this rank's loaders for evaluation; an empty list when there are none."""
        raw = self._raw(what)
        if raw is None:
            return []
        loader = combine(raw, "sequential")
        if isinstance(loader, CombinedLoader) and loader.mode == "sequential":
            loaders = loader.flattened  # one after the other, each with its number
        else:
            several = isinstance(loader, list | tuple) and all(hasattr(item, "__iter__") for item in loader)
            loaders = list(loader) if several else [loader]
        return [each(loader, lambda one: self._sharded(one, train=False, name=f"{what} loaders")) for loader in loaders]

    def _sharded(self, loader: Any, *, train: bool, name: str) -> Any:
        run = self.run
        assert run is not None, "asked inside a run only"
        if run.ranks.world_size > 1 and seeds_workers():
            loader = with_worker_seed(loader, run.ranks.global_rank)
        if not run.trainer.use_distributed_sampler:
            return loader
        return shard_loader(loader, run.hooks.shard_data(), train=train, seed=sampler_seed(), name=name)

    def reload(self, loop: TrainingLoop, epoch: int) -> None:
        """Make the loaders anew where ``reload_dataloaders_every_n_epochs`` says so, those left out that were given."""
        assert self.run is not None, "asked inside a run only"
        every = self.run.trainer.reload_dataloaders_every_n_epochs
        if not every or epoch % every:
            return
        if self.given.get("train") is None:
            loop.use_loader(self.training())
        if loop.evaluation is not None and self.given.get("validation") is None:
            loop.evaluation.use_loaders(self.evaluation("validation"))


def each(loader: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``loader`` with ``change`` applied to it, or to each loader it combines."""
    return loader.each(change) if isinstance(loader, CombinedLoader) else change(loader)


def refuse_no_loader(name: str, loader: Any) -> None:
    """Refuse what cannot be read as batches.

    Raises:
        WrongType: naming it.
    """
    if isinstance(loader, CombinedLoader):
        for one in loader.flattened:
            refuse_no_loader(f"each loader in {name}", one)
        return
    whole = isinstance(loader, str | bytes | type | nn.Module)  # some of them can be iterated, but not over batches
    if isinstance(loader, Dataset) and not hasattr(loader, "__iter__"):
        raise WrongType(
            f"{name} must be a loader, not the dataset {type(loader).__name__}, whose samples are no batches\n"
            "  hint: give DataLoader(dataset, batch_size=...)"
        )
    if whole or not any(hasattr(type(loader), way) for way in ("__iter__", "__getitem__")):
        raise WrongType(
            f"{name} must be a DataLoader or another iterable of batches, not {type(loader).__name__} {loader!r:.60}"
        )


def _in_order(loader: Any) -> Any:
    """Return the loader without shuffling: overfitting needs the same few batches in every epoch."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    if not isinstance(loader.sampler, RandomSampler):
        return loader
    return with_sampler(loader, SequentialSampler(loader.dataset))  # type: ignore[arg-type]  # it has a length

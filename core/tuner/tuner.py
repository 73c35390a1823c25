"""The searches as people call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from core.arguments import choice, flag, whole
from core.data.source import DataSource
from core.errors import InvalidArgument
from core.loops.run import Run
from core.tuner.batch_size import KINDS, BatchSizeSearch
from core.tuner.holders import need_holders, write_all
from core.tuner.learning_rate import LearningRateSearch, LRFinder
from core.tuner.stage import TuneStage, search_inside

if TYPE_CHECKING:
    from core.trainer import Trainer

LEARNING_RATES = ("lr", "learning_rate")


class Tuner:
    """Searches with the plugins of ``trainer``, on every rank, and leaves nothing behind but the value it found.

    What a search changes, it keeps in memory and puts back, also when it fails: weights, modes, attributes, optimizers,
    schedulers, random numbers, counters, loaders. Callbacks and loggers take no part. Called inside a fit, it works
    with the model and the optimizers of that fit.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def scale_batch_size(
        self,
        model: nn.Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        dataloaders: Any = None,
        datamodule: Any = None,
        method: Literal["fit", "validate", "test", "predict"] = "fit",
        mode: str = "power",
        steps_per_trial: int = 3,
        init_val: int = 2,
        max_trials: int = 25,
        batch_arg_name: str = "batch_size",
        margin: float = 0.0,
        max_val: int | None = None,
    ) -> int | None:
        """Find the largest batch size that fits into memory, write it back, and return it.

        Args:
            model: the module.
            train_dataloaders, val_dataloaders, dataloaders: only a data module may stand here: the batch size of a
                loader that was made already cannot be changed.
            datamodule: makes the loaders, if the module does not.
            method: what has to fit.
            mode: ``"power"`` doubles until memory runs out; ``"binsearch"`` then looks between the last two sizes.
            steps_per_trial: steps that a size has to take.
            init_val: the first size.
            max_trials: how many sizes are tried at most.
            batch_arg_name: the attribute, or hyperparameter, of module or data module that their loaders read.
            margin: the part of what ``"binsearch"`` found that is left free, such as 0.05.
            max_val: no larger size is tried.

        Returns:
            The size; None under ``fast_dev_run``, where there is nothing to find.

        Raises:
            InvalidArgument: when loaders are given, or nothing is called ``batch_arg_name``.
            InterlockError: when no size fits.
        """
        datamodule = only_datamodule(datamodule, train_dataloaders, val_dataloaders, dataloaders)
        search = BatchSizeSearch(
            batch_arg_name,
            choice("mode", mode, ("power", "binsearch")),
            whole("steps_per_trial", steps_per_trial, least=1),
            whole("init_val", init_val, least=1),
            whole("max_trials", max_trials, least=1),
            choice("method", method, tuple(KINDS)),
            max_val,
            margin,
        )
        holders = need_holders((batch_arg_name,), model, datamodule, "scale_batch_size")
        if self._trying("scale_batch_size"):
            return None
        size: int = self._search(search, model, DataSource({}, datamodule), search.method)
        write_all(holders, size)
        return size

    def lr_find(
        self,
        model: nn.Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        dataloaders: Any = None,
        datamodule: Any = None,
        method: Literal["fit"] = "fit",
        min_lr: float = 1e-8,
        max_lr: float = 1.0,
        num_training: int = 100,
        mode: str = "exponential",
        early_stop_threshold: float | None = 4.0,
        update_attr: bool = True,
        attr_name: str = "",
    ) -> LRFinder | None:
        """Train while the learning rate rises from ``min_lr`` to ``max_lr``, and see where the loss falls fastest.

        Args:
            model: the module, with one optimizer.
            train_dataloaders: loaders to train on, or a data module.
            val_dataloaders, dataloaders: accepted and not read.
            datamodule: makes the loaders, if neither they are given nor the module does.
            method: ``"fit"``.
            min_lr, max_lr: the range.
            num_training: steps.
            mode: ``"exponential"`` or ``"linear"``.
            early_stop_threshold: stop when the loss is so many times the best; None never.
            update_attr: write the suggestion back.
            attr_name: where to; by default ``lr`` or ``learning_rate`` of the module or its hyperparameters.

        Returns:
            The losses, with ``suggestion()`` and ``plot()``; None under ``fast_dev_run``.

        Raises:
            InvalidArgument: when there is no place to write to.
            InterlockError: for a module with several optimizers.
        """
        if method != "fit":
            raise InvalidArgument(f"method={method!r}: a learning rate is found by 'fit' alone")
        search = _learning_rate_search(min_lr, max_lr, num_training, mode, early_stop_threshold)
        names = (attr_name,) if attr_name else LEARNING_RATES
        if hasattr(train_dataloaders, "prepare_data") and hasattr(train_dataloaders, "setup"):
            train_dataloaders, datamodule = None, train_dataloaders
        holders = need_holders(names, model, datamodule, "lr_find") if flag("update_attr", update_attr) else []
        if self._trying("lr_find"):
            return None
        given = {} if train_dataloaders is None else {"train": train_dataloaders}
        found: LRFinder = self._search(search, model, DataSource(given, datamodule), "fit")
        suggestion = found.suggestion()
        if holders and suggestion is not None:
            write_all(holders, suggestion)
        elif holders:
            self._trainer.warn(f"lr_find suggests nothing from {len(found.results['loss'])} losses; nothing is changed")
        return found

    def _search(self, search: Callable[[Run], Any], model: nn.Module, data: DataSource, method: str) -> Any:
        trainer = self._trainer
        if trainer.training and trainer._run is not None and trainer._run.module is model:
            return search_inside(trainer._run, search)
        stage = TuneStage(model, data, search=search, method=method)
        stage.check(trainer)
        return stage.start(trainer).value

    def _trying(self, what: str) -> bool:
        if self._trainer.fast_dev_run:
            self._trainer.warn(f"{what} does nothing under fast_dev_run")
        return bool(self._trainer.fast_dev_run)


def _learning_rate_search(
    min_lr: float, max_lr: float, num_training: int, mode: str, early_stop_threshold: float | None
) -> LearningRateSearch:
    if not 0 < min_lr < max_lr:
        raise InvalidArgument(f"min_lr={min_lr} and max_lr={max_lr} must be above 0, the first below the second")
    steps = whole("num_training", num_training, least=2)
    return LearningRateSearch(
        min_lr, max_lr, steps, choice("mode", mode, ("exponential", "linear")), early_stop_threshold
    )


def only_datamodule(datamodule: Any, *loaders: Any) -> Any:
    """Return the data module, wherever it stands, and refuse loaders."""
    given = [loader for loader in loaders if loader is not None]
    if len(given) == 1 and datamodule is None and hasattr(given[0], "prepare_data") and hasattr(given[0], "setup"):
        return given[0]
    if given:
        raise InvalidArgument(
            f"scale_batch_size was given a {type(given[0]).__name__}, whose batch size cannot be changed any more\n"
            "  hint: write train_dataloader(self) in the module or a data module, and let it read self.batch_size"
        )
    return datamodule

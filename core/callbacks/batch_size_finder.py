"""Find a batch size at the start of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from core.callbacks.base import Callback

if TYPE_CHECKING:
    from core.trainer import Trainer


class BatchSizeFinder(Callback):
    """Searches before the first step as :meth:`core.tuner.Tuner.scale_batch_size` does, and trains with what it found.

    Args:
        mode, steps_per_trial, init_val, max_trials, batch_arg_name, margin, max_val: see there.
    """

    def __init__(
        self,
        mode: str = "power",
        steps_per_trial: int = 3,
        init_val: int = 2,
        max_trials: int = 25,
        batch_arg_name: str = "batch_size",
        margin: float = 0.0,
        max_val: int | None = None,
    ) -> None:
        self.mode, self.steps_per_trial, self.init_val = mode, steps_per_trial, init_val
        self.max_trials, self.batch_arg_name = max_trials, batch_arg_name
        self.margin, self.max_val = margin, max_val
        self.optimal_batch_size: int | None = None

    def on_fit_start(self, trainer: Trainer, module: nn.Module) -> None:
        from core.loops.evaluation import EvaluationLoop
        from core.tuner.batch_size import BatchSizeSearch
        from core.tuner.holders import need_holders, write_all
        from core.tuner.stage import search_inside
        from core.tuner.tuner import only_datamodule

        run = trainer._run
        assert run is not None, "on_fit_start is inside fit"
        assert run.loop is not None, "on_fit_start comes when the loop is made"
        if trainer.fast_dev_run or trainer.progress.batch:
            why = "fast_dev_run" if trainer.fast_dev_run else "a fit that goes on inside an epoch"
            trainer.warn(f"BatchSizeFinder does nothing under {why}")
            return
        datamodule = only_datamodule(run.data.datamodule, *run.data.given.values())
        holders = need_holders((self.batch_arg_name,), module, datamodule, "BatchSizeFinder")
        search = BatchSizeSearch(
            self.batch_arg_name,
            self.mode,
            self.steps_per_trial,
            self.init_val,
            self.max_trials,
            max_val=self.max_val,
            margin=self.margin,
        )
        size = self.optimal_batch_size = search_inside(run, search)
        write_all(holders, size)
        run.loop.use_loader(run.data.training())
        if run.evaluation is not None:
            loaders = run.data.evaluation("validation")
            run.evaluation = run.loop.evaluation = EvaluationLoop(run, loaders, trainer.limit_val_batches)

"""Find a learning rate at the start of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from core.callbacks.base import Callback

if TYPE_CHECKING:
    from core.loops.run import Run
    from core.trainer import Trainer
    from core.tuner import LRFinder


class LearningRateFinder(Callback):
    """Searches before the first step as :meth:`core.tuner.Tuner.lr_find` does, and trains with what it found.

    Args:
        min_lr, max_lr, num_training_steps, mode, early_stop_threshold, update_attr, attr_name: see there; with
            ``update_attr=False`` the search is only kept in :attr:`optimal_lr`.
    """

    def __init__(
        self,
        min_lr: float = 1e-8,
        max_lr: float = 1.0,
        num_training_steps: int = 100,
        mode: str = "exponential",
        early_stop_threshold: float | None = 4.0,
        update_attr: bool = True,
        attr_name: str = "",
    ) -> None:
        self.min_lr, self.max_lr, self.num_training_steps = min_lr, max_lr, num_training_steps
        self.mode, self.early_stop_threshold = mode, early_stop_threshold
        self.update_attr, self.attr_name = update_attr, attr_name
        self.optimal_lr: LRFinder | None = None

    def on_fit_start(self, trainer: Trainer, module: nn.Module) -> None:
        self.lr_find(trainer, module)

    def lr_find(self, trainer: Trainer, module: nn.Module) -> None:
        """Search now; a subclass may call it again later, such as in ``on_train_epoch_start``."""
        from core.tuner.holders import need_holders, write_all
        from core.tuner.learning_rate import LearningRateSearch
        from core.tuner.stage import search_inside
        from core.tuner.tuner import LEARNING_RATES

        run = trainer._run
        assert run is not None, "called inside fit"
        if trainer.fast_dev_run:
            trainer.warn("LearningRateFinder does nothing under fast_dev_run")
            return
        names = (self.attr_name,) if self.attr_name else LEARNING_RATES
        holders = need_holders(names, module, run.data.datamodule, "LearningRateFinder") if self.update_attr else []
        search = LearningRateSearch(
            self.min_lr, self.max_lr, self.num_training_steps, self.mode, self.early_stop_threshold
        )
        self.optimal_lr = search_inside(run, search)
        suggestion = self.optimal_lr.suggestion()
        if holders and suggestion is not None:
            write_all(holders, suggestion)
            use_learning_rate(run, suggestion)


def use_learning_rate(run: Run, rate: float) -> None:
    """Let optimizers that exist already, and their schedulers, start from ``rate``."""
    for optimizer in run.setup.optimizers:
        for group in optimizer.param_groups:
            start = float(group.get("initial_lr", group["lr"])) or 1.0
            group["lr"] = group["lr"] * (rate / start)
            if "initial_lr" in group:
                group["initial_lr"] = rate
    for config in run.setup.schedulers:
        if hasattr(config.scheduler, "base_lrs"):
            config.scheduler.base_lrs = [rate for _ in config.scheduler.base_lrs]

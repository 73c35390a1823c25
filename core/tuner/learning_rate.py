"""Find a learning rate: sweep over a range, and look where the loss falls fastest."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from core.callbacks.base import Callback
from core.errors import InterlockError, PluginUnavailable
from core.loops.loss import loss_of
from core.loops.run import Run
from core.tuner.trial import hide, take_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from core.trainer import Trainer

SMOOTHING = 0.98
"""How much of the running mean of the loss stays at each step."""


@dataclass
class LRFinder:
    """What a sweep came to: smoothed losses by learning rate."""

    mode: str
    lr_min: float
    lr_max: float
    num_training: int
    results: dict[str, list[float]] = field(default_factory=lambda: {"lr": [], "loss": []})

    def suggestion(self, skip_begin: int = 10, skip_end: int = 1) -> float | None:
        """Return the learning rate at which the loss falls fastest; None where too few losses are left.

        Args:
            skip_begin: losses at the start that do not count: the mean is young there.
            skip_end: losses at the end that do not count.
        """
        place = self._steepest(skip_begin, skip_end)
        return None if place is None else self.results["lr"][place]

    def _steepest(self, skip_begin: int, skip_end: int) -> int | None:
        losses = self.results["loss"]
        places = range(skip_begin, len(losses) - skip_end)
        if len(places) < 2:
            return None
        return min(places, key=lambda place: _slope(losses, place, places[0], places[-1]))

    def plot(self, suggest: bool = False, path: str | os.PathLike[str] | None = None) -> Figure:
        """Return a picture of the sweep for matplotlib; written to ``path``, a PNG, where one is given.

        Args:
            suggest: mark :meth:`suggestion`.
            path: a file to write.

        Raises:
            PluginUnavailable: without matplotlib.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            reason = "package 'matplotlib' is not installed; pip install \"interlock[plot]\""
            raise PluginUnavailable("the plot of a learning-rate sweep", [reason]) from error
        figure = Figure(figsize=(6, 4), layout="constrained")  # not pyplot's: nothing is left open
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.plot(self.results["lr"], self.results["loss"], color="tab:blue")
        if self.mode == "exponential":
            axes.set_xscale("log")
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss, smoothed")
        suggested = self.suggestion() if suggest else None
        if suggested is not None:
            loss = self.results["loss"][self.results["lr"].index(suggested)]
            axes.plot([suggested], [loss], "o", color="tab:red", label=f"suggestion {suggested:.3g}")
            axes.legend(frameon=False)
        if path is not None:
            figure.savefig(path)
        return figure


def _slope(losses: list[float], place: int, first: int, last: int) -> float:
    """Return the slope at ``place``: over both neighbours, at the ends over one."""
    before, after = max(place - 1, first), min(place + 1, last)
    return (losses[after] - losses[before]) / (after - before)


@dataclass
class LearningRateSearch:
    """Sweeps over learning rates in a run; every rank runs it, and all see the same losses.

    Args:
        lr_min, lr_max: the range.
        num_training: optimizer steps.
        mode: ``"exponential"`` or ``"linear"``.
        early_stop_threshold: stop when the loss is so many times the best; None never.
    """

    lr_min: float
    lr_max: float
    num_training: int
    mode: str
    early_stop_threshold: float | None

    def __call__(self, run: Run) -> LRFinder:
        """Search."""
        count = len(run.setup.optimizers)
        if count != 1:
            raise InterlockError(f"lr_find takes a module with one optimizer; {type(run.module).__name__} has {count}")
        if not getattr(run.module, "automatic_optimization", True):
            name = type(run.module).__name__
            raise InterlockError(f"{name} has automatic_optimization = False: it sets its own learning rates")
        sweep = Sweep(self)
        hide(run, [sweep])
        loader = run.data.training()
        window = run.trainer.accumulate_grad_batches
        take_steps(run, loader, self.num_training, window, enough=lambda: sweep.take(run))
        return sweep.found

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, from 0."""
        share = step / max(self.num_training - 1, 1)
        if self.mode == "linear":
            return self.lr_min + (self.lr_max - self.lr_min) * share
        return float(self.lr_min * (self.lr_max / self.lr_min) ** share)


class Sweep(Callback):
    """Sets the learning rate before each step, and collects losses."""

    def __init__(self, search: LearningRateSearch) -> None:
        self.search = search
        self.found = LRFinder(search.mode, search.lr_min, search.lr_max, search.num_training)
        self._losses: list[torch.Tensor] = []
        self._mean = 0.0
        self._best = math.inf

    def on_train_batch_start(self, trainer: Trainer, module: nn.Module, batch: Any, batch_idx: int) -> None:
        rate = self.search.rate(trainer.global_step)
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = torch.full_like(group["lr"], rate) if isinstance(group["lr"], torch.Tensor) else rate

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = loss_of(outputs)
        if loss is not None:
            self._losses.append(loss.detach())

    def take(self, run: Run) -> bool:
        """Take the losses of one step over all ranks, and tell whether to stop."""
        losses, self._losses = self._losses, []
        if not losses:
            return False
        own = torch.stack([loss.reshape(()) for loss in losses]).double().mean()
        loss = float(run.hooks.reduce(own.to(run.device), "mean"))
        if not math.isfinite(loss):
            return True
        done = len(self.found.results["loss"]) + 1
        self._mean = SMOOTHING * self._mean + (1 - SMOOTHING) * loss
        smooth = self._mean / (1 - SMOOTHING**done)
        self.found.results["lr"].append(self.search.rate(run.trainer.global_step - 1))
        self.found.results["loss"].append(smooth)
        self._best = min(self._best, smooth)
        threshold = self.search.early_stop_threshold
        return threshold is not None and done > 1 and smooth > threshold * self._best

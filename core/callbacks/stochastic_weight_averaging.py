"""Average the weights of the last epochs, trained with a learning rate of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import SWALR

from core.arguments import choice, whole
from core.callbacks.base import Callback
from core.callbacks.running_average import RunningAverage, refuse_parts
from core.data.stream import read
from core.errors import InvalidArgument
from core.optim import SchedulerConfig

if TYPE_CHECKING:
    from core.loops.run import Run
    from core.trainer import Trainer


class StochasticWeightAveraging(Callback):
    """From ``swa_epoch_start`` on, anneals to the learning rate ``swa_lrs`` and averages the weights of epochs.

    When training is over the module holds the average; where it has batch norm, one more reading of the training data
    gives those layers the statistics of the averaged weights.

    Args:
        swa_lrs: the learning rate, or one for each parameter group.
        swa_epoch_start: the epoch, counted from 1, or the fraction of ``max_epochs`` after which it begins.
        annealing_epochs: epochs until ``swa_lrs`` is reached.
        annealing_strategy: ``"cos"`` or ``"linear"``.
        avg_fn: how to average, as :class:`torch.optim.swa_utils.AveragedModel` takes it; equally by default.
        device: where the average is kept; None where the module is.
    """

    def __init__(
        self,
        swa_lrs: float | list[float],
        swa_epoch_start: int | float = 0.8,
        annealing_epochs: int = 10,
        annealing_strategy: Literal["cos", "linear"] = "cos",
        avg_fn: Callable[[Tensor, Tensor, Tensor | int], Tensor] | None = None,
        device: torch.device | str | int | None = None,
    ) -> None:
        rates = swa_lrs if isinstance(swa_lrs, list) else [swa_lrs]
        if not rates or any(isinstance(rate, bool) or not isinstance(rate, float) or rate <= 0 for rate in rates):
            raise InvalidArgument(f"swa_lrs={swa_lrs!r} must be a positive float or a list of them")
        if isinstance(swa_epoch_start, float):
            if not 0.0 <= swa_epoch_start <= 1.0:
                raise InvalidArgument(f"swa_epoch_start={swa_epoch_start} must be from 0.0 to 1.0, or a whole epoch")
        else:
            whole("swa_epoch_start", swa_epoch_start, least=1)
        self.swa_lrs, self.swa_epoch_start = swa_lrs, swa_epoch_start
        self.annealing_epochs = whole("annealing_epochs", annealing_epochs, least=0)
        self.annealing_strategy = choice("annealing_strategy", annealing_strategy, ("cos", "linear"))
        self._avg_fn, self._device = avg_fn, device
        self._average: RunningAverage | None = None
        self._begun = False
        self._loaded: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_average": None}

    def first_epoch(self, trainer: Trainer) -> int:
        """Return the epoch, from 0, with which it begins."""
        start = self.swa_epoch_start
        if isinstance(start, float):
            if trainer.max_epochs < 0:
                raise InvalidArgument(f"swa_epoch_start={start} is a fraction of max_epochs, which has no limit here")
            start = int(trainer.max_epochs * start)
        return max(start - 1, 0)

    def setup(self, trainer: Trainer, module: nn.Module, stage: str) -> None:
        if stage == "fit":
            self.first_epoch(trainer)
            self._average, self._begun = None, False
            if not getattr(module, "automatic_optimization", True):
                name = type(module).__name__
                raise InvalidArgument(f"{name} has automatic_optimization = False: it sets its own learning rates")

    # ------------------------------------------------------------------ training

    def on_fit_start(self, trainer: Trainer, module: nn.Module) -> None:
        refuse_parts(module)

    def on_train_epoch_start(self, trainer: Trainer, module: nn.Module) -> None:
        if self._loaded is not None:
            self._make(module).load_state_dict(self._loaded["average"], self._loaded["count"])
            self._loaded = None
        if not self._begun and trainer.current_epoch >= self.first_epoch(trainer):
            self._begin(trainer)

    def _begin(self, trainer: Trainer) -> None:
        """Put schedulers that anneal in the place of the module's own."""
        self._begun = True
        trainer.lr_scheduler_configs[:] = [
            SchedulerConfig(
                SWALR(optimizer, self.swa_lrs, self.annealing_epochs, self.annealing_strategy)  # type: ignore[arg-type]
            )
            for optimizer in trainer.optimizers
        ]

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        if self._begun:
            self._make(module).update()

    def _make(self, module: nn.Module) -> RunningAverage:
        if self._average is None:
            self._average = RunningAverage(module, self._device, use_buffers=False, avg_fn=self._avg_fn)
        return self._average

    def on_train_end(self, trainer: Trainer, module: nn.Module) -> None:
        if self._average is not None:
            self._average.copy_to_module()
            run = trainer._run
            if run is not None and run.loop is not None:
                renew_batch_norm(run)

    # ------------------------------------------------------------------ checkpoints

    def state_dict(self) -> dict[str, Any]:
        if self._average is None:
            return {"begun": self._begun}
        return {"begun": self._begun, "count": self._average.count, "average": self._average.state_dict()}

    def on_load_checkpoint(self, trainer: Trainer, module: nn.Module, checkpoint: dict[str, Any]) -> None:
        if checkpoint["callbacks"].get(self.state_key, {}).get("begun"):
            self._begin(trainer)  # now, since the schedulers' state is about to be restored

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict if "average" in state_dict else None


def renew_batch_norm(run: Run) -> None:
    """Compute the statistics of batch-norm layers anew, by one reading of the training data on every rank."""
    layers = [p for p in run.module.modules() if isinstance(p, _BatchNorm) and p.running_mean is not None]
    if not layers or run.loop is None:
        return
    trainer, step = run.trainer, run.loop.step.own_step
    results, trainer.results = trainer.results, run.results(on_step=True, on_epoch=False)
    transfer, context = run.transfer(), run.hooks.forward_context()
    with torch.no_grad(), _averaging_equally(layers):
        for index, batch in enumerate(islice(read(run.loop.loader), run.loop.total)):
            moved = batch if transfer is None else transfer(batch, run.device)
            trainer.results.batch = moved
            with context:
                step(moved, index)
    trainer.results = results
    for layer in layers:
        for statistics in (layer.running_mean, layer.running_var):
            assert statistics is not None, "layers without statistics were left out"
            statistics.copy_(run.hooks.reduce(statistics, "mean"))


@contextlib.contextmanager
def _averaging_equally(layers: list[_BatchNorm]) -> Iterator[None]:
    """Let the layers forget their statistics, and inside weigh every batch the same."""
    before = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    try:
        yield
    finally:
        for layer, momentum in zip(layers, before, strict=True):
            layer.momentum = momentum

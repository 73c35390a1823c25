"""What people read off a Trainer: counters, ranks, metrics, and who takes part in the run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core.assembly import in_order
from core.callbacks import Callback, EarlyStopping, ModelCheckpoint
from core.data.stream import length_of
from core.environments import detect_environment
from core.loggers import Logger
from core.metrics.gathering import rows_of_ranks
from core.strategy_view import StrategyView

if TYPE_CHECKING:
    from core.loops.progress import Progress
    from core.loops.run import Run
    from core.metrics import Results
    from core.optim import SchedulerConfig
    from core.plan import Plan

ACTIVITIES = {"train": "training", "validation": "validating", "test": "testing", "predict": "predicting"}


class Readings:
    """The reading side of the Trainer; the loops write through the last few methods."""

    plan: Plan
    progress: Progress
    callbacks: list[Callback]
    loggers: list[Logger]
    results: Results | None
    max_epochs: int
    max_steps: int
    accumulate_grad_batches: int
    num_sanity_val_steps: int

    training: bool
    validating: bool
    testing: bool
    predicting: bool
    sanity_checking: bool

    def _start_readings(self) -> None:
        for attribute in (*ACTIVITIES.values(), "sanity_checking"):
            setattr(self, attribute, False)
        self._metrics: dict[str, float] = {}
        self._bar_metrics: dict[str, float] = {}
        self._logged: dict[str, float] = {}
        self._run: Run | None = None
        self.interrupted = False
        """Whether the newest run was broken off by Ctrl-C."""
        self.ckpt_path: str | None = None
        """The checkpoint that the newest run was given."""

    # ------------------------------------------------------------------ counters

    @property
    def current_epoch(self) -> int:
        """The running epoch, from 0; after ``fit`` the number of epochs done."""
        return self.progress.epoch

    @property
    def global_step(self) -> int:
        """Optimizer steps so far, those included that loss scaling skipped."""
        return self.progress.global_step

    @property
    def skipped_steps(self) -> int:
        """Optimizer steps that were skipped: by loss scaling, or for want of a loss."""
        return self.progress.skipped_steps

    @property
    def is_last_batch(self) -> bool:
        """Whether the running micro-batch is the last of its epoch."""
        return bool(self._run and self._run.loop and self._run.loop.step.ends_epoch)

    @property
    def num_training_batches(self) -> int | None:
        """Micro-batches per epoch on this rank; None if the loader does not say, or outside ``fit``."""
        return self._run.loop.total if self._run and self._run.loop else None

    @property
    def num_val_batches(self) -> list[int | None]:
        """Batches of each validation loader on this rank; empty outside ``fit`` and ``validate``."""
        return self._evaluation_batches("validation")

    @property
    def num_sanity_val_batches(self) -> list[int | None]:
        """Batches of each validation loader that the sanity check reads; empty outside ``fit``."""
        most = self.num_sanity_val_steps
        if self._run is None or self._run.loop is None:
            return []
        totals = self._evaluation_batches("validation")
        return totals if most < 0 else [most if total is None else min(most, total) for total in totals]

    @property
    def num_test_batches(self) -> list[int | None]:
        """Batches of each test loader on this rank; empty outside ``test``."""
        return self._evaluation_batches("test")

    @property
    def num_predict_batches(self) -> list[int | None]:
        """Batches of each loader of a prediction on this rank; empty outside ``predict``."""
        return self._evaluation_batches("predict")

    def _evaluation_batches(self, kind: str) -> list[int | None]:
        evaluation = self._run.evaluation if self._run else None
        return list(evaluation.totals) if evaluation is not None and evaluation.kind == kind else []

    @property
    def received_sigterm(self) -> bool:
        """Whether the scheduler has warned that it will end the job."""
        loop = self._run.loop if self._run else None
        return loop is not None and (loop.limits.preempted or loop.limits.preemption.warned)

    @property
    def estimated_stepping_batches(self) -> float:
        """Optimizer steps that this fit will take at most, for schedulers; infinite where nothing limits them."""
        steps = float("inf") if self.max_steps < 0 else float(self.max_steps)
        total = self._training_batches()
        if total is not None and self.max_epochs >= 0:
            steps = min(steps, -(-total // self.accumulate_grad_batches) * self.max_epochs)
        return int(steps) if steps != float("inf") else steps

    def _training_batches(self) -> int | None:
        from core.arguments import batches_within

        if self._run is None or not self._run.data.has("train", self._run.module):
            return None
        if self._run.loop is not None:
            return self._run.loop.total
        limit = self.limit_train_batches  # type: ignore[attr-defined]  # the Trainer's own
        length = length_of(self._run.data.training())  # configure_optimizers asks before the loop is made
        return None if length is None else batches_within(limit, length, "limit_train_batches")

    # ------------------------------------------------------------------ ranks

    @property
    def global_rank(self) -> int:
        """This process's number among all processes; outside runs what a launcher says, else 0."""
        if self._run is not None:
            return self._run.ranks.global_rank
        ranks = detect_environment().ranks
        return ranks.global_rank if ranks else 0

    @property
    def local_rank(self) -> int:
        """This process's number on its node."""
        return self._run.ranks.local_rank if self._run else 0

    @property
    def node_rank(self) -> int:
        """This node's number."""
        return self._run.ranks.node_rank if self._run else 0

    @property
    def world_size(self) -> int:
        """Number of processes of a run."""
        return self.plan.world_size

    @property
    def num_devices(self) -> int:
        """Devices per node."""
        return self.plan.num_devices

    @property
    def num_nodes(self) -> int:
        """Number of machines."""
        return self.plan.num_nodes

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.global_rank == 0

    # ------------------------------------------------------------------ who takes part

    @property
    def precision(self) -> str:
        """The precision's name, as it was resolved."""
        return self.plan.precision.name

    @property
    def strategy(self) -> Any:
        """The strategy during a run, with ``barrier()`` and the like, else its name."""
        return StrategyView(self._run) if self._run else self.plan.strategy.name

    @property
    def accelerator(self) -> Any:
        """The accelerator's implementation during a run, else its name."""
        return self._run.plugins["accelerator"] if self._run else self.plan.accelerator.name

    @property
    def precision_plugin(self) -> Any:
        """The precision's implementation during a run, else None."""
        return self._run.plugins["precision"] if self._run else None

    @property
    def scaler(self) -> Any:
        """The loss scaler, where the precision has one."""
        return getattr(self.precision_plugin, "scaler", None)

    @property
    def model(self) -> Any:
        """The module as the strategy wrapped it."""
        return self._run.wrapped.module if self._run and self._run.wrapped else None

    @property
    def lightning_module(self) -> Any:
        """The user's module."""
        return self._run.module if self._run else None

    @property
    def datamodule(self) -> Any:
        """The data module, where one was given."""
        return self._run.data.datamodule if self._run else None

    @property
    def train_dataloader(self) -> Any:
        """This rank's training loader."""
        return self._run.loop.loader if self._run and self._run.loop else None

    def _evaluation_loaders(self, kind: str) -> list[Any]:
        evaluation = self._run.evaluation if self._run else None
        return list(evaluation.loaders) if evaluation is not None and evaluation.kind == kind else []

    @property
    def val_dataloaders(self) -> list[Any]:
        """This rank's validation loaders; empty outside ``fit`` and ``validate``."""
        return self._evaluation_loaders("validation")

    @property
    def test_dataloaders(self) -> list[Any]:
        """This rank's test loaders; empty outside ``test``."""
        return self._evaluation_loaders("test")

    @property
    def predict_dataloaders(self) -> list[Any]:
        """This rank's loaders of a prediction; empty outside ``predict``."""
        return self._evaluation_loaders("predict")

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers of the run, as the strategy made them."""
        return self._run.setup.optimizers if self._run else []

    @property
    def lr_scheduler_configs(self) -> list[SchedulerConfig]:
        """The schedulers of the run and when they step."""
        return self._run.setup.schedulers if self._run else []

    @property
    def logger(self) -> Logger | None:
        """The first logger."""
        return self.loggers[0] if self.loggers else None

    @property
    def log_dir(self) -> str | None:
        """The folder of the first logger that has one."""
        return next((logger.log_dir for logger in self.loggers if logger.log_dir), None)

    @property
    def checkpoint_callback(self) -> ModelCheckpoint | None:
        """The first ModelCheckpoint."""
        return next(iter(self.checkpoint_callbacks), None)

    @property
    def checkpoint_callbacks(self) -> list[ModelCheckpoint]:
        """Every ModelCheckpoint."""
        return [c for c in self.callbacks if isinstance(c, ModelCheckpoint)]

    @property
    def early_stopping_callback(self) -> EarlyStopping | None:
        """The first EarlyStopping."""
        return next(iter(self.early_stopping_callbacks), None)

    @property
    def early_stopping_callbacks(self) -> list[EarlyStopping]:
        """Every EarlyStopping."""
        return [c for c in self.callbacks if isinstance(c, EarlyStopping)]

    # ------------------------------------------------------------------ metrics

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """All logged values by name, the newest of each: scalars in host memory."""
        latest = dict(self._metrics)
        if self.results is not None and not self.sanity_checking:
            latest.update(self.results.callback_metrics())
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in latest.items()}

    @property
    def logged_metrics(self) -> dict[str, Tensor]:
        """What the loggers got last."""
        return {name: torch.tensor(value) for name, value in self._logged.items()}

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """The newest of the values that were logged with ``prog_bar=True``, as numbers."""
        step = self.results.step_metrics(prog_bar=True) if self.results is not None else {}
        return {**self._bar_metrics, **step}

    # ------------------------------------------------------------------ for loops and callbacks

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's ``value`` on every rank; every rank has to call it."""
        return self._run.hooks.broadcast(value) if self._run else value

    def gather(self, number: float) -> list[float]:
        """Return the ``number`` of every rank, in the order of the ranks; every rank has to call it."""
        if self._run is None:
            return [number]
        own = torch.tensor(number, dtype=torch.float64, device=self._run.device)
        return [float(each) for each in rows_of_ranks(self._run, own)]

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Say what goes on inside, and afterwards what went on before."""
        before = {name: getattr(self, name) for name in ACTIVITIES.values()}
        for name in before:
            setattr(self, name, name == ACTIVITIES[what])
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def add_callbacks(self, more: Callback | Sequence[Callback]) -> None:
        """Take the callbacks that a module brings; one of a kind that is there already takes its place."""
        added: list[Any] = list(more) if isinstance(more, list | tuple) else [more]
        kinds = {type(callback) for callback in added}
        self.callbacks = in_order([*(c for c in self.callbacks if type(c) not in kinds), *added])

    def take(self, results: Results) -> None:
        """Keep the values of ``results`` for :attr:`callback_metrics` and :attr:`progress_bar_metrics`."""
        self._metrics.update(results.callback_metrics() | results.epoch_metrics())
        self._bar_metrics.update(results.step_metrics(prog_bar=True) | results.epoch_metrics(prog_bar=True))

    def keep_last_values(self) -> None:
        """Keep the running stage's last values as numbers, and let go of the stage."""
        results, self.results = self.results, None
        if results is not None:
            with suppress(Exception):  # after a failure of a device its values cannot be read, and that is told already
                self._metrics.update(results.callback_metrics())
                self._bar_metrics.update(results.step_metrics(prog_bar=True))

    def log_to_loggers(self, metrics: Mapping[str, float]) -> None:
        """Hand numbers to every logger, on rank 0."""
        if not metrics:
            return
        self._logged.update(metrics)
        if self.is_global_zero:
            row = {**metrics, "epoch": self.current_epoch}
            for logger in self.loggers:
                logger.log_metrics(row, self.global_step)

    def save_loggers(self) -> None:
        """Let every logger write what it holds back, so that a run that is killed loses one epoch at most."""
        if self.is_global_zero:
            for logger in self.loggers:
                logger.save()

    def print(self, *values: object, **how: Any) -> None:
        """Print on rank 0 only."""
        if self.is_global_zero:
            print(*values, **how)

    def warn(self, text: str) -> None:
        """Warn the user, once per process and text."""
        warnings.warn(text, UserWarning, stacklevel=2)

"""The Trainer: what people ask for, resolved to a plan, and the runs they start with it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from core import arguments
from core.callbacks import Callback, ModelCheckpoint, ProgressBar
from core.errors import InterlockError, InvalidArgument, WrongType
from core.instances import split_instances
from core.loggers import CSVLogger, Logger
from core.loops.progress import Progress
from core.loops.stage import FitStage, Stage, StageResult, ValidateStage
from core.registry import get_registry
from core.request import Features, Request

if TYPE_CHECKING:
    from core.loops.run import Run
    from core.metrics import Results
    from core.plan import Plan

UNBOUNDED_EPOCHS = 1000
SAVE_TIMEOUT = 30.0
"""Seconds within which all ranks must come to a save; they come from the same step, so they are close."""


class Trainer:
    """Trains a module with an accelerator, a precision and a strategy, each a plugin chosen by name.

    Making one resolves the plan (``print(trainer.plan)``) and changes nothing else: no process starts, no
    device opens, no environment variable is set.

    Args:
        accelerator: a name such as ``"cpu"`` or ``"cuda"``, a configured instance, or ``"auto"``.
        strategy: a name such as ``"ddp"``, a configured instance such as ``DDPStrategy(static_graph=True)``, or "auto".
        devices: a count, a list of indices, -1 for all, or "auto"; see :mod:`core.spellings`.
        num_nodes: number of machines.
        precision: a name such as ``"bf16-mixed"``, a number such as 16, a configured instance; None is 32-true.
        max_epochs: epochs to train; None is 1000 unless ``max_steps`` is given, -1 has no limit.
        max_steps: optimizer steps to train; -1 has no limit.
        accumulate_grad_batches: micro-batches per optimizer step; a shorter last window is divided by its own size.
        gradient_clip_val: where gradients are clipped, None or 0 for not at all.
        gradient_clip_algorithm: ``"norm"`` (the global norm over all ranks' parameters) or ``"value"``.
        limit_train_batches, limit_val_batches: batches per epoch, or a fraction of them.
        check_val_every_n_epoch: validate at the end of every n-th epoch.
        callbacks: one or several.
        logger: one or several; None or True is a CSV file, False none.
        enable_checkpointing: save checkpoints even where no ModelCheckpoint is among the callbacks.
        enable_progress_bar: show progress.
        log_every_n_steps: how often step values go to the loggers.
        sync_batchnorm: compute batch-norm statistics over all ranks.
        use_distributed_sampler: give each rank its own part of the loaders.
        default_root_dir: where logs and checkpoints go; the current folder by default.

    Raises:
        InvalidArgument: for a value outside its table of forms.
        UnknownPlugin, InvalidCombination, PluginUnavailable, PluginBroken, DuplicatePlugin: see :mod:`core.errors`.
    """

    def __init__(
        self,
        *,
        accelerator: str | object = "auto",
        strategy: str | object = "auto",
        devices: int | str | Sequence[int] = "auto",
        num_nodes: int = 1,
        precision: str | int | object | None = None,
        logger: bool | Logger | Sequence[Logger] | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        max_epochs: int | None = None,
        max_steps: int = -1,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        check_val_every_n_epoch: int = 1,
        log_every_n_steps: int = 50,
        enable_checkpointing: bool = True,
        enable_progress_bar: bool = True,
        accumulate_grad_batches: int = 1,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str = "norm",
        sync_batchnorm: bool = False,
        use_distributed_sampler: bool = True,
        default_root_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        whole, flag = arguments.whole, arguments.flag
        self.max_steps = whole("max_steps", max_steps, least=-1)
        default_epochs = UNBOUNDED_EPOCHS if max_steps < 0 else -1
        self.max_epochs = whole("max_epochs", default_epochs if max_epochs is None else max_epochs, least=-1)
        self.accumulate_grad_batches = whole("accumulate_grad_batches", accumulate_grad_batches, least=1)
        self.gradient_clip_val = arguments.clip_value("gradient_clip_val", gradient_clip_val)
        algorithms = ("norm", "value")
        self.gradient_clip_algorithm = arguments.choice("gradient_clip_algorithm", gradient_clip_algorithm, algorithms)
        self.limit_train_batches = arguments.limit("limit_train_batches", limit_train_batches)
        self.limit_val_batches = arguments.limit("limit_val_batches", limit_val_batches)
        self.check_val_every_n_epoch = whole("check_val_every_n_epoch", check_val_every_n_epoch, least=1)
        self.log_every_n_steps = whole("log_every_n_steps", log_every_n_steps, least=1)
        self.use_distributed_sampler = flag("use_distributed_sampler", use_distributed_sampler)
        self.default_root_dir = os.fspath(default_root_dir) if default_root_dir is not None else os.getcwd()
        features = Features(
            self.gradient_clip_val,
            self.gradient_clip_algorithm,
            self.accumulate_grad_batches,
            flag("sync_batchnorm", sync_batchnorm),
        )
        registry = get_registry()
        given = {"accelerator": accelerator, "precision": precision, "strategy": strategy}
        names, self._instances, options = split_instances(registry, given)
        self.plan: Plan = registry.resolve(
            Request.build(**names, devices=devices, num_nodes=num_nodes, features=features, options=options)
        )
        self.loggers = _loggers(logger, self.default_root_dir)
        checkpointing = flag("enable_checkpointing", enable_checkpointing)
        bar = flag("enable_progress_bar", enable_progress_bar)
        self.callbacks = _callbacks(callbacks, checkpointing, bar)
        self.progress = Progress()
        self.should_stop = False
        self.validating = False
        self.results: Results = None  # type: ignore[assignment]  # set by the loops, read inside runs only
        self._metrics: dict[str, float] = {}
        self._bar_metrics: dict[str, float] = {}
        self._run: Run | None = None

    # ------------------------------------------------------------------ runs

    def fit(
        self,
        module: nn.Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Train ``module``, and validate it at the end of epochs where it has a ``validation_step`` and loaders.

        Args:
            module: with ``training_step`` and ``configure_optimizers``; any ``nn.Module`` that has them.
            train_dataloaders: a DataLoader, or any iterable of batches.
            val_dataloaders: one, or a list of them.
            ckpt_path: a checkpoint to go on from.

        Raises:
            InterlockError: when the module lacks a method, or the checkpoint does not fit.
            RankFailed: when another process of the run failed.
        """
        self.should_stop = False
        self._start(FitStage(module, train_dataloaders, val_dataloaders, _path(ckpt_path)))

    def validate(
        self,
        module: nn.Module,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
    ) -> list[dict[str, float]]:
        """Run the module's ``validation_step`` over the loaders.

        Returns:
            A list of one dictionary: the metrics over the epoch.
        """
        metrics = self._start(ValidateStage(module, dataloaders, _path(ckpt_path))).value
        if verbose and self.is_global_zero:
            print("\n".join(f"{name:<24} {value:.6g}" for name, value in metrics.items()))
        return [metrics]

    def _start(self, stage: Stage) -> StageResult:
        stage.check(self)
        self.end_run()
        return stage.start(self)

    def end_run(self) -> None:
        """Give back what the last run still holds; called by the next run, and at the end of the program."""
        run, self._run = self._run, None
        if run is not None:
            run.hooks.teardown()

    def save_checkpoint(self, filepath: str | os.PathLike[str], weights_only: bool = False) -> None:
        """Write a checkpoint; during a run, or after it until the next begins. Every rank has to call it.

        Raises:
            WaitTimeout: when a rank does not call it.
            CheckpointError: on every rank, when rank 0 could not write.
        """
        from core.checkpoint.save import save

        if self._run is None:
            raise InterlockError("save_checkpoint needs a run: call it in a callback or after fit, in the same process")
        save(self._run, os.fspath(filepath), weights_only, SAVE_TIMEOUT)

    # ------------------------------------------------------------------ what people read

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
        """Optimizer steps that loss scaling skipped."""
        return self.progress.skipped_steps

    @property
    def global_rank(self) -> int:
        """This process's number among all processes; 0 outside runs of several."""
        return self._run.ranks.global_rank if self._run else _own_rank()

    @property
    def local_rank(self) -> int:
        """This process's number on its node."""
        return self._run.ranks.local_rank if self._run else 0

    @property
    def world_size(self) -> int:
        """Number of processes of a run."""
        return self.plan.world_size

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.global_rank == 0

    @property
    def num_devices(self) -> int:
        """Devices per node."""
        return self.plan.num_devices

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers of the run, as the strategy made them."""
        return self._run.setup.optimizers if self._run else []

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
        return next((c for c in self.callbacks if isinstance(c, ModelCheckpoint)), None)

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """All logged values by name, the newest of each: scalars in host memory."""
        latest = dict(self._metrics)
        if self.results is not None:
            latest.update(self.results.step_metrics())
        return {name: torch.tensor(value) for name, value in latest.items()}

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """The newest of the values that were logged with ``prog_bar=True``, as numbers."""
        step = self.results.step_metrics(prog_bar=True) if self.results is not None else {}
        return {**self._bar_metrics, **step}

    @property
    def num_training_batches(self) -> int | None:
        """Micro-batches per epoch on this rank; None if the loader does not say, or outside ``fit``."""
        return self._run.loop.total if self._run and self._run.loop else None

    # ------------------------------------------------------------------ for loops and callbacks

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's ``value`` on every rank; every rank has to call it."""
        return self._run.hooks.broadcast(value) if self._run else value

    def gather(self, number: float) -> list[float]:
        """Return the ``number`` of every rank, in the order of the ranks; every rank has to call it."""
        if self._run is None:
            return [number]
        ranks = self._run.ranks
        numbers = torch.zeros(ranks.world_size, dtype=torch.float64, device=self._run.device)
        numbers[ranks.global_rank] = number
        return [float(each) for each in self._run.hooks.reduce(numbers, "sum")]

    def take(self, results: Results) -> None:
        """Keep the values of ``results`` for :attr:`callback_metrics` and :attr:`progress_bar_metrics`."""
        self._metrics.update(results.step_metrics() | results.epoch_metrics())
        self._bar_metrics.update(results.step_metrics(prog_bar=True) | results.epoch_metrics(prog_bar=True))

    def log_to_loggers(self, metrics: Mapping[str, float]) -> None:
        """Hand numbers to every logger, on rank 0."""
        if metrics and self.is_global_zero:
            row = {**metrics, "epoch": self.current_epoch}
            for logger in self.loggers:
                logger.log_metrics(row, self.global_step)

    def warn(self, text: str) -> None:
        """Warn the user, once per process and text."""
        warnings.warn(text, UserWarning, stacklevel=2)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None, "results": None}


def _own_rank() -> int:
    """Return the rank that a launcher gave this process; scripts ask for it before and between runs."""
    from core.session import detect_environment

    ranks = detect_environment().ranks
    return ranks.global_rank if ranks else 0


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def _loggers(given: bool | Logger | Sequence[Logger] | None, root: str) -> list[Logger]:
    if given is None or given is True:
        return [CSVLogger(root)]
    if given is False:
        return []
    loggers = [given] if isinstance(given, Logger) else list(given)
    for logger in loggers:
        if not isinstance(logger, Logger):
            raise WrongType(f"logger must be a Logger, a list of them, True or False, not {type(logger).__name__}")
    return loggers


def _callbacks(given: Callback | Sequence[Callback] | None, checkpointing: bool, bar: bool) -> list[Callback]:
    callbacks = [given] if isinstance(given, Callback) else list(given or ())
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise WrongType(f"callbacks must be Callback objects, not {type(callback).__name__} {callback!r}")
    saving = [c for c in callbacks if isinstance(c, ModelCheckpoint)]
    if saving and not checkpointing:
        raise InvalidArgument("enable_checkpointing=False, but a ModelCheckpoint is among the callbacks; drop one")
    if checkpointing and not saving:
        saving = [ModelCheckpoint()]
    others = [c for c in callbacks if c not in saving]
    if bar and not any(isinstance(c, ProgressBar) for c in others):
        others.append(ProgressBar())
    return [*others, *saving]  # checkpoints last: they hold what the other callbacks did at the same point

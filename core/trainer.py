"""The Trainer: what people ask for, resolved to a plan, and the runs they start with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from core import arguments
from core.assembly import make_callbacks, make_loggers
from core.callbacks import Callback
from core.checkpoint.asked import path_asked_for
from core.data.source import DataSource
from core.errors import InterlockError, WrongType
from core.instances import split_instances, with_plugins
from core.loggers import Logger
from core.loops.preemption import FITS, path_to_go_on_from
from core.loops.progress import Progress
from core.past import refuse_past
from core.profilers import Profiler, make_profiler
from core.readings import Readings
from core.registry import get_registry
from core.request import Features, Request
from core.stages import EvaluateStage, FitStage, Stage, StageResult
from core.strangers import warn_of_broken

if TYPE_CHECKING:
    from core.metrics import Results
    from core.plan import Plan

UNBOUNDED_EPOCHS = 1000
SAVE_TIMEOUT = 30.0
"""Seconds within which all ranks must come to a save; they come from the same step, so they are close."""


class Trainer(Readings):
    """Trains a module with an accelerator, a precision and a strategy, each a plugin chosen by name.

    Making one resolves the plan (``print(trainer.plan)``) and changes nothing else: no process starts, no
    device opens, no environment variable is set.

    Args:
        accelerator: a name such as ``"cpu"`` or ``"cuda"``, a configured instance, or ``"auto"``.
        strategy: a name such as ``"ddp"``, a configured instance such as ``DDPStrategy(static_graph=True)``, or "auto".
        devices: a count, a list of indices, -1 for all, or "auto"; see :mod:`core.spellings`.
        num_nodes: number of machines.
        precision: a name such as ``"bf16-mixed"``, a number such as 16, a configured instance; None is 32-true.
        logger: one or several; None or True is a CSV file, False none.
        callbacks: one or several; a name takes one that an installed package brings (``python -m core.callbacks``).
        fast_dev_run: try the code with one batch (True) or so many of each loader, without files.
        max_epochs: epochs to train; None is 1000 unless ``max_steps`` is given, -1 has no limit.
        min_epochs, min_steps: train at least so long, whoever wishes to stop.
        max_steps: optimizer steps to train; -1 has no limit.
        max_time: time to train: a timedelta, its keywords in a dict, or ``"DD:HH:MM:SS"``.
        limit_train_batches, limit_val_batches, limit_test_batches, limit_predict_batches: batches per epoch, or a
            fraction of them.
        overfit_batches: train and validate on so many batches, or a fraction, in the same order in every epoch.
        val_check_interval: validate after so many batches, or this fraction of an epoch.
        check_val_every_n_epoch: validate in every n-th epoch; None counts batches across epochs.
        num_sanity_val_steps: batches of validation before training; -1 all, 0 none.
        log_every_n_steps: how often step values go to the loggers.
        enable_checkpointing: save checkpoints even where no ModelCheckpoint is among the callbacks.
        enable_progress_bar: show progress.
        enable_model_summary: show the module's parts and sizes before training.
        accumulate_grad_batches: micro-batches per optimizer step; a shorter last window is divided by its own size.
        gradient_clip_val: where gradients are clipped, None or 0 for not at all.
        gradient_clip_algorithm: ``"norm"`` (the global norm over all ranks' parameters) or ``"value"``.
        deterministic: use deterministic algorithms during runs; ``"warn"`` only warns where there is none.
        benchmark: let cuDNN try out kernels during runs.
        inference_mode: evaluate under ``torch.inference_mode`` rather than ``torch.no_grad``.
        use_distributed_sampler: give each rank its own part of the loaders.
        profiler: ``"simple"`` shows the time of each action when a run is over, ``"pytorch"`` writes a trace of a few
            steps; or a Profiler.
        detect_anomaly: find the operation that made a gradient NaN; slow.
        plugins: configured instances of plugins, each in place of the argument of its kind.
        sync_batchnorm: compute batch-norm statistics over all ranks.
        reload_dataloaders_every_n_epochs: ask for the loaders of a fit anew every n epochs; 0 never.
        async_checkpointing: write checkpoints in a thread beside the training; a run ends when they are on disk.
        barebones: no checkpoints, loggers, bar, summary or sanity check: for measuring.
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
        callbacks: Callback | str | Sequence[Callback | str] | None = None,
        fast_dev_run: bool | int = False,
        max_epochs: int | None = None,
        min_epochs: int | None = None,
        max_steps: int = -1,
        min_steps: int | None = None,
        max_time: str | timedelta | Mapping[str, int] | None = None,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        limit_test_batches: int | float | None = None,
        limit_predict_batches: int | float | None = None,
        overfit_batches: int | float = 0.0,
        val_check_interval: int | float | None = None,
        check_val_every_n_epoch: int | None = 1,
        num_sanity_val_steps: int | None = None,
        log_every_n_steps: int = 50,
        enable_checkpointing: bool | None = None,
        enable_progress_bar: bool | None = None,
        enable_model_summary: bool | None = None,
        accumulate_grad_batches: int = 1,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
        deterministic: bool | Literal["warn"] | None = None,
        benchmark: bool | None = None,
        inference_mode: bool = True,
        use_distributed_sampler: bool = True,
        profiler: str | Profiler | None = None,
        detect_anomaly: bool = False,
        plugins: object | Sequence[object] | None = None,
        sync_batchnorm: bool = False,
        reload_dataloaders_every_n_epochs: int = 0,
        async_checkpointing: bool = False,
        barebones: bool = False,
        default_root_dir: str | os.PathLike[str] | None = None,
        **past: object,
    ) -> None:
        whole, flag, limit = arguments.whole, arguments.flag, arguments.limit
        refuse_past(past, Trainer.__init__.__annotations__)
        self.fast_dev_run = arguments.dev_run("fast_dev_run", fast_dev_run)
        self.max_steps = whole("max_steps", max_steps, least=-1)
        self.max_time = arguments.duration("max_time", max_time)
        endless = max_steps < 0 and max_time is None
        self.max_epochs = whole("max_epochs", _or(max_epochs, UNBOUNDED_EPOCHS if endless else -1), least=-1)
        self.min_epochs = whole("min_epochs", _or(min_epochs, 0), least=0)
        self.min_steps = whole("min_steps", _or(min_steps, 0), least=0)
        self.limit_train_batches = limit("limit_train_batches", limit_train_batches)
        self.limit_val_batches = limit("limit_val_batches", limit_val_batches)
        self.limit_test_batches = limit("limit_test_batches", limit_test_batches)
        self.limit_predict_batches = limit("limit_predict_batches", limit_predict_batches)
        self.overfit_batches = limit("overfit_batches", overfit_batches)
        self.val_check_interval = arguments.validation_interval("val_check_interval", val_check_interval)
        self.check_val_every_n_epoch = check_val_every_n_epoch
        if check_val_every_n_epoch is not None:
            whole("check_val_every_n_epoch", check_val_every_n_epoch, least=1)
        self.num_sanity_val_steps = whole("num_sanity_val_steps", _or(num_sanity_val_steps, 2), least=-1)
        self.log_every_n_steps = whole("log_every_n_steps", log_every_n_steps, least=1)
        self.accumulate_grad_batches = whole("accumulate_grad_batches", accumulate_grad_batches, least=1)
        self.gradient_clip_val = arguments.clip_value("gradient_clip_val", gradient_clip_val)
        algorithms = ("norm", "value")
        algorithm = _or(gradient_clip_algorithm, "norm")
        self.gradient_clip_algorithm = arguments.choice("gradient_clip_algorithm", algorithm, algorithms)
        self.deterministic = deterministic if deterministic in (None, "warn") else flag("deterministic", deterministic)
        self.benchmark = None if benchmark is None else flag("benchmark", benchmark)
        self.inference_mode = flag("inference_mode", inference_mode)
        self.use_distributed_sampler = flag("use_distributed_sampler", use_distributed_sampler)
        self.detect_anomaly = flag("detect_anomaly", detect_anomaly)
        self.profiler = make_profiler(profiler)
        self.async_checkpointing = flag("async_checkpointing", async_checkpointing)
        every = "reload_dataloaders_every_n_epochs"
        self.reload_dataloaders_every_n_epochs = whole(every, reload_dataloaders_every_n_epochs, least=0)
        self.default_root_dir = arguments.folder("default_root_dir", default_root_dir)
        features = Features(
            self.gradient_clip_val,
            self.gradient_clip_algorithm,
            self.accumulate_grad_batches,
            flag("sync_batchnorm", sync_batchnorm),
            bool(self.benchmark),
        )
        bare = flag("barebones", barebones)
        checkpointing = flag("enable_checkpointing", _or(enable_checkpointing, not bare))
        bar = flag("enable_progress_bar", _or(enable_progress_bar, not bare))
        summary = flag("enable_model_summary", _or(enable_model_summary, not bare))
        if bare:
            logger, self.num_sanity_val_steps = _or(logger, False), 0
        self._apply_quick_modes()
        given = {"accelerator": accelerator, "precision": precision, "strategy": strategy}
        self.plan: Plan = self._resolve(with_plugins(given, plugins), devices, num_nodes, features)
        trying = self.fast_dev_run > 0
        self.loggers = make_loggers(False if trying else logger, self.default_root_dir)
        self.callbacks = make_callbacks(callbacks, checkpointing, bar, summary, trying)
        self.progress = Progress()
        self.should_stop = False
        self.fit_number = 0
        """Which fit of the program the newest was, from 1."""
        self.results: Results | None = None
        self._module: nn.Module | None = None
        """The module of the newest run, for an evaluation that is given none."""
        self._start_readings()

    def _resolve(self, given: dict[str, object], devices: object, num_nodes: object, features: Features) -> Plan:
        registry = get_registry()
        names, self._instances, options = split_instances(registry, given)
        return registry.resolve(
            Request.build(**names, devices=devices, num_nodes=num_nodes, features=features, options=options)
        )

    def _apply_quick_modes(self) -> None:
        """Let ``fast_dev_run`` and ``overfit_batches`` decide the limits that follow from them."""
        if self.fast_dev_run:
            batches = self.fast_dev_run
            self.max_epochs, self.max_steps, self.num_sanity_val_steps = 1, batches, 0
            self.limit_train_batches = self.limit_val_batches = batches
            self.limit_test_batches = self.limit_predict_batches = batches
            self.val_check_interval, self.check_val_every_n_epoch = 1.0, 1
        elif self.overfit_batches:
            self.limit_train_batches = self.limit_val_batches = self.overfit_batches

    # ------------------------------------------------------------------ runs

    def fit(
        self,
        model: nn.Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Train ``model``, and validate it where it has a ``validation_step`` and there are loaders.

        Args:
            model: with ``training_step`` and ``configure_optimizers``; any ``nn.Module`` that has them.
            train_dataloaders: a DataLoader, any iterable of batches, or a dict or list of DataLoaders to read together.
            val_dataloaders: one, or a list of them.
            datamodule: an object with ``train_dataloader`` and the like, in place of loaders.
            ckpt_path: a checkpoint to go on from; ``"last"`` and ``"best"`` ask the ModelCheckpoint; ``"last"`` looks
                for a file of an earlier program in its folder too, and begins anew where there is none. A job that its
                scheduler queued again goes on from where it was warned instead.

        Raises:
            InterlockError: when the module lacks a method, or the checkpoint does not fit.
            RankFailed: when another process of the run failed.
        """
        self.should_stop = False
        given, datamodule = _data(datamodule, train=train_dataloaders, validation=val_dataloaders)
        self.fit_number = next(FITS)
        path = self._path_of_queued_job(ckpt_path) or path_asked_for(self, ckpt_path, begins=True)
        self._start(FitStage(model, DataSource(given, datamodule), path))
        run = self._run
        if run is not None and run.loop is not None and run.loop.limits.preempted:
            raise SystemExit(0)  # the rest of the script is for a training that is over; this one goes on later

    def validate(
        self,
        model: nn.Module | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: Any = None,
    ) -> list[dict[str, float]]:
        """Run the module's ``validation_step`` over the loaders; return the metrics of each loader.

        Without a ``model`` it is that of the newest run, with the best checkpoint of a fit where there is one.
        """
        return self._evaluate("validate", "validation", model, dataloaders, ckpt_path, verbose, datamodule)

    def test(
        self,
        model: nn.Module | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: Any = None,
    ) -> list[dict[str, float]]:
        """Run the module's ``test_step`` over the loaders; return the metrics of each loader, as :meth:`validate`."""
        return self._evaluate("test", "test", model, dataloaders, ckpt_path, verbose, datamodule)

    def predict(
        self,
        model: nn.Module | None = None,
        dataloaders: Any = None,
        datamodule: Any = None,
        return_predictions: bool = True,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> list[Any] | None:
        """Run the module's ``predict_step`` (by default its forward) over the loaders; ``model`` as for ``test``.

        Returns:
            This rank's predictions, batch by batch; with several loaders, a list for each of them.
        """
        given, datamodule = _data(datamodule, predict=dataloaders)
        source = DataSource(given, datamodule)
        model, path = self._to_evaluate("predict", model, ckpt_path)
        stage = EvaluateStage(model, source, path, what="predict", keep=return_predictions)
        predictions = self._start(stage).value.predictions
        if not return_predictions:
            return None
        return predictions[0] if len(predictions) == 1 else predictions  # type: ignore[no-any-return]

    def _evaluate(
        self, what: str, kind: str, model: Any, loaders: Any, ckpt_path: Any, verbose: bool, datamodule: Any
    ) -> list[dict[str, float]]:
        given, datamodule = _data(datamodule, **{kind: loaders})
        model, path = self._to_evaluate(what, model, ckpt_path)
        stage = EvaluateStage(model, DataSource(given, datamodule), path, what=what)
        metrics: list[dict[str, float]] = self._start(stage).value.metrics
        if verbose and self.is_global_zero:
            for number, values in enumerate(metrics):
                title = f"{what}, loader {number}" if len(metrics) > 1 else what
                print("\n".join([title, *(f"  {name:<24} {value:.6g}" for name, value in values.items())]))
        return metrics

    def _to_evaluate(self, what: str, model: Any, ckpt_path: Any) -> tuple[Any, str | None]:
        """Return the module and the checkpoint of an evaluation; without a module, what the newest fit came to."""
        if model is not None:
            return model, path_asked_for(self, ckpt_path)
        if self._module is None:
            raise InterlockError(f"{what} was given no module, and no run came before it whose module could be meant")
        saving = self.checkpoint_callback
        if ckpt_path is None and saving is not None and saving.best_model_path:
            ckpt_path = path_asked_for(self, "best")
            if self.is_global_zero:
                print(f"{what} was given no module: using the best of the last fit, {ckpt_path}", flush=True)
        return self._module, path_asked_for(self, ckpt_path)

    def _start(self, stage: Stage) -> StageResult:
        stage.check(self)
        if self.is_global_zero:
            warn_of_broken(get_registry())
        self.ckpt_path = stage.ckpt_path
        self.end_run()
        self._module = stage.module
        return stage.start(self)

    def end_run(self) -> None:
        """Give back what the last run still holds: the module, wrapped or not, optimizers, process groups.

        The next run does so itself, be it this Trainer's or another's on the same module.
        """
        self._module = None
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def save_checkpoint(self, filepath: str | os.PathLike[str], weights_only: bool = False) -> None:
        """Write a checkpoint; during a run, or after it until the next begins. Every rank has to call it.

        Raises:
            WaitTimeout: when a rank does not call it.
            CheckpointError: on every rank, when rank 0 could not write.
        """
        from core.checkpoint.save import save

        if self._run is None:
            raise InterlockError(
                "save_checkpoint needs a run: call it in a callback or after fit, in the same process, and before\n"
                "  another Trainer takes the module or end_run() is called"
            )
        save(self._run, os.fspath(filepath), weights_only, SAVE_TIMEOUT)

    def remove_checkpoint(self, filepath: str | os.PathLike[str]) -> None:
        """Remove a checkpoint on rank 0, after the one that is being written, if any, is there."""
        from core.checkpoint.save import remove

        if self.is_global_zero:
            remove(self._run, os.fspath(filepath))

    def _path_of_queued_job(self, given: object) -> str | None:
        """Return where a job that was queued again goes on from, and say so; None for any other."""
        path = path_to_go_on_from(self.default_root_dir, self.fit_number)
        if path is not None and self.is_global_zero:
            instead = f", not from ckpt_path={os.fspath(given)!r}" if isinstance(given, str | os.PathLike) else ""
            print(f"the job was queued again: going on from {path}{instead}", flush=True)
        return path

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None, "_module": None, "results": None}


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _data(datamodule: Any, **loaders: Any) -> tuple[dict[str, Any], Any]:
    """Return the loaders that were given and the data module; one may stand in the place of the other."""
    given = {what: loader for what, loader in loaders.items() if loader is not None}
    for one in (datamodule, *given.values()):
        if isinstance(one, type) and hasattr(one, "prepare_data"):
            raise WrongType(f"datamodule must be an object, not the class {one.__name__}; write {one.__name__}(...)")
    for what, loader in given.items():
        if hasattr(loader, "prepare_data") and hasattr(loader, "setup"):  # a data module as first argument
            return {}, loader
        if datamodule is not None:
            raise InterlockError(f"{what} loaders and a datamodule were given; give one of them")
    return given, datamodule

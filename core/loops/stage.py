"""A stage of work (fit, validate): checked in the caller, run in each process, its outcome brought home."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn
from torch.optim import Optimizer

from core.callbacks.events import Events
from core.checkpoint import content, read_checkpoint
from core.data.sharding import shard_loader
from core.errors import InterlockError, InvalidCombination, WrongType
from core.loops import home
from core.loops.evaluation import EvaluationLoop
from core.loops.run import Run, StepRouter
from core.loops.training import TrainingLoop
from core.module import Module
from core.optim import OptimizerSetup, configure_optimizers
from core.optim.rules import module_party
from core.plugins.binding import bind, make_plugins
from core.rules import violations
from core.seed import sampler_seed
from core.session import Ranks

if TYPE_CHECKING:
    from core.trainer import Trainer


@dataclass
class StageResult:
    """What a stage came to on rank 0: its value, and where processes of their own ran it, what they changed."""

    value: Any = None
    changes: dict[str, Any] | None = None


@dataclass
class Stage(ABC):
    """One stage; can be pickled, since it travels to the processes that run it."""

    module: nn.Module
    name: ClassVar[str]
    trainer: Trainer = field(init=False, repr=False)
    run: Run | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def check(self, trainer: Trainer) -> None:
        """Refuse what cannot work, before any process starts."""

    @abstractmethod
    def work(self, run: Run) -> Any:
        """Do the stage's work in one process."""

    def start(self, trainer: Trainer) -> StageResult:
        """Start the processes, wait for the outcome, and take it over."""
        self.trainer = trainer
        self._prepare()
        assert self.run is not None
        run, launch = self.run, self.run.hooks.launch
        try:
            result: StageResult = launch(self)
        except BaseException:
            run.hooks.teardown()
            raise
        if result.changes is not None:
            home.take(trainer, self.module, result.changes)
        else:
            trainer._run = run  # so that a checkpoint can be saved after the run
        return result

    def _prepare(self) -> None:
        plan = self.trainer.plan
        plugins = make_plugins(plan, self.trainer._instances)
        hooks = bind(plan, plugins)
        events = Events(self.trainer, self.module, self.trainer.callbacks)
        router = StepRouter(self.module)
        self.run = Run(self.trainer, self.module, plan, plugins, hooks, Ranks(), None, events, router)  # type: ignore[arg-type]

    def __call__(self, ranks: Ranks) -> StageResult:
        """Run in one process; in a spawned one the plugins are made here, for they do not travel."""
        if self.run is None:
            self._prepare()
        run, trainer = self.run, self.trainer
        assert run is not None
        run.ranks = ranks
        for plugin in run.plugins.values():
            plugin.ranks = ranks
        trainer._run = run
        if isinstance(self.module, Module):
            self.module._trainer = trainer
        fire = run.events.fire
        status = "failed"
        try:
            run.device = run.hooks.setup_device(ranks)
            for plugin in run.plugins.values():
                plugin.device = run.device
            fire("setup", self.name)
            value = self.work(run)
            status = "success"
        except BaseException as error:
            trainer._run = None
            fire("on_exception", error)
            raise
        finally:
            fire("teardown", self.name)
            if run.is_rank_zero:
                for logger in trainer.loggers:
                    logger.finalize(status)
        away = run.plan.launch.how == "spawn"
        return StageResult(value, home.collect(run) if away and run.is_rank_zero else None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": None}

    def _loaders(self, given: Any) -> list[Any]:
        if given is None:
            return []
        return list(given) if isinstance(given, list | tuple) else [given]

    def _sharded(self, run: Run, loader: Any, *, train: bool, name: str) -> Any:
        if not run.trainer.use_distributed_sampler:
            return loader
        return shard_loader(loader, run.hooks.shard_data(), train=train, seed=sampler_seed(), name=name)


def _need_methods(module: object, names: Sequence[str], stage: str) -> None:
    if not isinstance(module, nn.Module):
        raise WrongType(f"{stage} takes an nn.Module, not {type(module).__name__} {module!r}")
    missing = [name for name in names if not callable(getattr(module, name, None))]
    if missing:
        raise InterlockError(f"{type(module).__name__} has no {' and no '.join(missing)}, which {stage} calls")


@dataclass
class FitStage(Stage):
    """Training, with validation between epochs."""

    train: Any = None
    validation: Any = None
    ckpt_path: str | None = None
    name: ClassVar[str] = "fit"

    def check(self, trainer: Trainer) -> None:
        _need_methods(self.module, ("training_step", "configure_optimizers"), "fit")
        if self.train is None:
            raise InterlockError("fit has no training data: pass train_dataloaders")
        if self._loaders(self.validation):
            _need_methods(self.module, ("validation_step",), "fit with val_dataloaders")
        if self.ckpt_path is not None:
            read_checkpoint(self.ckpt_path)

    def work(self, run: Run) -> None:
        trainer = run.trainer
        train = self._sharded(run, self.train, train=True, name="train_dataloaders")

        def make_optimizers() -> list[Optimizer]:
            run.setup = configure_optimizers(self.module)
            _refuse_module(run, run.setup)
            return list(run.setup.optimizers)

        run.wrapped = run.hooks.wrap_model(run.router, make_optimizers)
        run.setup.rebind(run.wrapped.optimizers)
        loaders = [
            self._sharded(run, loader, train=False, name="val_dataloaders") for loader in self._loaders(self.validation)
        ]
        evaluation = EvaluationLoop(run, loaders, trainer.limit_val_batches) if loaders else None
        loop = TrainingLoop(run, train, evaluation)
        run.loop = loop
        if self.ckpt_path is not None:
            checkpoint = read_checkpoint(self.ckpt_path)
            for line in content.differences(checkpoint, run.plan) if run.is_rank_zero else ():
                trainer.warn(f"checkpoint {self.ckpt_path!r}: {line}")
            content.restore(run, loop, checkpoint, self.ckpt_path)
        run.events.fire("on_fit_start")
        loop.fit()
        run.events.fire("on_fit_end")


@dataclass
class ValidateStage(Stage):
    """Evaluation alone."""

    validation: Any = None
    ckpt_path: str | None = None
    name: ClassVar[str] = "validate"

    def check(self, trainer: Trainer) -> None:
        _need_methods(self.module, ("validation_step",), "validate")
        if not self._loaders(self.validation):
            raise InterlockError("validate has no data: pass dataloaders")
        if self.ckpt_path is not None:
            read_checkpoint(self.ckpt_path)

    def work(self, run: Run) -> dict[str, float]:
        run.wrapped = run.hooks.wrap_model(run.router, list)
        if self.ckpt_path is not None:
            content.restore_weights(run, read_checkpoint(self.ckpt_path), self.ckpt_path)
        loaders = [
            self._sharded(run, loader, train=False, name="dataloaders") for loader in self._loaders(self.validation)
        ]
        return EvaluationLoop(run, loaders, run.trainer.limit_val_batches).run_once()


def _refuse_module(run: Run, setup: OptimizerSetup) -> None:
    """Hold what the configured optimizers need against the plan, before the first step."""
    broken = violations([*run.plan.parties, module_party(setup, type(run.module).__name__)])
    if broken:
        raise InvalidCombination(f"{run.plan.combination}", broken)

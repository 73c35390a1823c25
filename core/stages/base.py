"""What all stages share: checked in the caller, run in each process, their outcome brought home."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from core.callbacks.events import Events
from core.checkpoint import read_checkpoint
from core.checkpoint.content import need
from core.checkpoint.layout import refuse_other_layout
from core.data.source import DataSource
from core.errors import InvalidCombination
from core.loggers.begin import agree_on_versions
from core.loops.run import Run, StepRouter
from core.optim.rules import structure_tokens
from core.parallel.guard import report_failure
from core.plugins.answers import wrong_answer
from core.plugins.binding import RUN, bind, broken, make_plugins
from core.plugins.blame import name_hook
from core.rules import Party, violations
from core.session import Ranks
from core.stages import home
from core.stages.attachment import attach, end_earlier, hold
from core.stages.settings import torch_settings

if TYPE_CHECKING:
    from core.plan import Plan
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
    data: DataSource
    ckpt_path: str | None = None
    trainer: Trainer = field(init=False, repr=False)
    run: Run | None = field(default=None, init=False, repr=False)

    name: ClassVar[str]

    @abstractmethod
    def check(self, trainer: Trainer) -> None:
        """Refuse what cannot work, before any process starts."""

    @abstractmethod
    def work(self, run: Run) -> Any:
        """Do the stage's work in one process."""

    def start(self, trainer: Trainer) -> StageResult:
        """Start the processes, wait for the outcome, and take it over."""
        self.trainer = trainer
        end_earlier(trainer, self.module)
        self._prepare()
        assert self.run is not None
        run, launch = self.run, self.run.hooks.launch
        refuse_structure(run.plan, self.module)
        try:
            result = _result_of(run, launch(self))
        except BaseException:
            run.close()
            raise
        elsewhere = _runs_elsewhere(run)
        if result.changes is not None and (elsewhere or run.ranks.serves):
            home.take(trainer, self.module, result.changes)
        if not elsewhere:
            hold(trainer, run)  # so that a checkpoint can be saved after the run
        return result

    def _prepare(self) -> None:
        trainer, plan = self.trainer, self.trainer.plan
        plugins = make_plugins(plan, trainer._instances)
        hooks = bind(plan, plugins)
        self.run = Run(
            trainer,
            self.module,
            plan,
            plugins,
            hooks,
            Ranks(),
            torch.empty(0).device,
            StepRouter(self.module),
            self.data,
        )
        self.data.run = self.run

    def __call__(self, ranks: Ranks) -> StageResult:
        """Run in one process; in a spawned one the plugins are made here, for they do not travel."""
        if self.run is None:
            self._prepare()
        run, trainer = self.run, self.trainer
        assert run is not None
        run.ranks = ranks
        for plugin in run.plugins.values():
            plugin.ranks = ranks
        trainer._run, trainer.interrupted = run, False
        status = "failed"
        with ExitStack() as stack:
            stack.enter_context(torch_settings(trainer))
            stack.enter_context(attach(trainer, self.module, self.data.datamodule))
            if ranks.serves:
                _set_up_device(run)
                self._add_own_callbacks(trainer)  # not to be called, but to take over what rank 0's come to
                return run.hooks.conclude(None)  # type: ignore[no-any-return]  # rank 0's outcome
            stack.callback(lambda: self._finish(run, status))
            try:
                value = self._set_up_and_work(run)
                result = _result_of(run, run.hooks.conclude(StageResult(value, self._changes(run))), "conclude")
                status = "success"
            except BaseException as raised:
                error = name_hook(raised, run.plan, run.plugins, self.module)
                trainer.interrupted = isinstance(error, KeyboardInterrupt)
                report_failure(error)  # first, for callbacks may take their time, or wait for other ranks
                run.events.fire("on_exception", error)
                trainer._run = None
                if error is raised:
                    raise
                raise error from raised
        return result

    def _changes(self, run: Run) -> dict[str, Any] | None:
        """Return what processes that did not run the loop take over from rank 0; weights go to none of the run's."""
        elsewhere = _runs_elsewhere(run)
        wanted = elsewhere or run.ranks.world_size < run.plan.world_size
        return home.collect(run, weights=elsewhere) if wanted and run.is_rank_zero else None

    def _set_up_and_work(self, run: Run) -> Any:
        trainer = run.trainer
        run.events = Events(trainer, self.module, trainer.callbacks, self.data.datamodule)
        _set_up_device(run)
        if self._add_own_callbacks(trainer):
            run.events = Events(trainer, self.module, trainer.callbacks, self.data.datamodule)
        agree_on_versions(run)
        self._prepare_data(run)
        run.events.fire("setup", self.name)
        run.hooks.barrier("setup", None)
        configure = getattr(self.module, "configure_model", None)
        if callable(configure):
            configure()
        return self.work(run)

    def _add_own_callbacks(self, trainer: Trainer) -> bool:
        """Add the callbacks that the module brings; tell whether it brings any."""
        own = getattr(self.module, "configure_callbacks", None)
        if callable(own):
            trainer.add_callbacks(own())
        return callable(own)

    def _prepare_data(self, run: Run) -> None:
        """Let one process per node prepare data, or one of all where the author says so, while the others wait."""
        owners = (self.data.datamodule, self.module)
        on_each_node = all(getattr(owner, "prepare_data_per_node", True) for owner in owners)
        if run.ranks.local_rank == 0 and (on_each_node or run.is_rank_zero):
            run.events.fire("prepare_data")
        run.hooks.barrier("prepare_data", None)

    def _finish(self, run: Run, status: str) -> None:
        if run.writer is not None:
            run.writer.finish()
        run.events.fire("teardown", self.name)
        run.trainer.profiler.finish(run.trainer, self.name)
        if run.is_rank_zero:
            for logger in run.trainer.loggers:
                logger.finalize(status)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": None}

    def _check_checkpoint(self, trainer: Trainer, keys: tuple[str, ...]) -> None:
        if self.ckpt_path is not None:
            checkpoint = read_checkpoint(self.ckpt_path, mapped=True)
            need(checkpoint, keys, self.ckpt_path)
            refuse_other_layout(checkpoint, trainer.plan, self.ckpt_path)


def _result_of(run: Run, answer: object, hook: str = "launch") -> StageResult:
    """Return what a strategy's hook handed on of a run, which it has to hand on as it is."""
    if not isinstance(answer, StageResult):
        raise broken(run.plan.strategy, RUN, wrong_answer(hook, answer, (StageResult,)))
    return answer


def _runs_elsewhere(run: Run) -> bool:
    """Tell whether the run's processes are others than those that came to it."""
    return run.plan.launch.how not in ("here", "subprocess", "external")


def _set_up_device(run: Run) -> None:
    run.device = run.hooks.setup_device(run.ranks)
    for plugin in run.plugins.values():
        plugin.device = run.device


def refuse_structure(plan: Plan, module: nn.Module) -> None:
    """Hold what the plan needs of a module against how this one is built, before any process starts.

    Raises:
        InvalidCombination: with every broken rule.
    """
    party = Party(f"module {type(module).__name__!r}", structure_tokens(module))
    broken = violations([*plan.parties, party])
    if broken:
        raise InvalidCombination(f"{plan.combination}", broken)

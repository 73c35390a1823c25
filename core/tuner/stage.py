"""A search as a stage of its own: in the processes of a run, and nothing left of it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.errors import InterlockError
from core.loggers.dummy import DummyLogger
from core.loops.run import Run
from core.profilers import Profiler
from core.session import Ranks
from core.stages import FitStage, StageResult
from core.stages.base import refuse_structure
from core.stages.fitness import need_methods
from core.tuner.batch_size import KINDS
from core.tuner.remember import Remembered

if TYPE_CHECKING:
    from core.trainer import Trainer


@dataclass
class TuneStage(FitStage):
    """Runs ``search`` with the model wrapped and the optimizers made as for ``method``.

    Whatever happens, module, data module, Trainer, given loaders and random numbers are then as they were before, in
    every process.
    """

    search: Callable[[Run], Any] = field(kw_only=True)
    method: str = field(default="fit", kw_only=True)

    def check(self, trainer: Trainer) -> None:
        if self.method == "fit":
            super().check(trainer)
            return
        kind = KINDS[self.method]
        need_methods(self.module, (f"{kind}_step",), self.method)
        if not self.data.has(kind, self.module):
            raise InterlockError(f"{self.method} has no data: write its loader in the module or in a data module")

    def start(self, trainer: Trainer) -> StageResult:
        """Run the search in the processes that a fit would have; the Trainer does not keep the run."""
        self.trainer = trainer
        before, profiler = trainer._run, trainer.profiler
        in_this_process = trainer.plan.launch.how == "here"
        if in_this_process:
            trainer._run = None
        else:
            trainer.end_run()
        trainer.profiler = Profiler()
        try:
            self._prepare()
            assert self.run is not None, "made just now"
            run = self.run
            refuse_structure(run.plan, self.module)
            try:
                result: StageResult = run.hooks.launch(self)
            finally:
                run.hooks.teardown()
        finally:
            trainer.profiler = profiler
            if in_this_process:
                trainer._run = before  # nothing was taken from it
        return result

    def __call__(self, ranks: Ranks) -> StageResult:
        if ranks.serves:
            return super().__call__(ranks)
        memory = Remembered()
        memory.random_numbers()
        memory.attributes(self.trainer)
        memory.value(self.module)
        if self.data.datamodule is not None:
            memory.attributes(self.data.datamodule)
        for loader in self.data.given.values():
            memory.loader(loader)
        self.trainer.callbacks, self.trainer.loggers = [], [DummyLogger() for _ in self.trainer.loggers]
        vars(self.module)["configure_callbacks"] = None  # the module's callbacks have no part in a search
        try:
            return super().__call__(ranks)
        finally:
            memory.restore()

    def _changes(self, run: Run) -> dict[str, Any] | None:
        return None

    def work(self, run: Run) -> Any:
        if run.ranks.world_size < run.plan.world_size:
            name = run.plan.strategy.name
            raise InterlockError(f"strategy {name!r} keeps parts of the model where a search could not put them back")
        if self.method == "fit":
            self._wrap(run)
        else:
            run.wrapped = run.hooks.wrap_model(run.router, list)
        return self.search(run)


def search_inside(run: Run, search: Callable[[Run], Any]) -> Any:
    """Run ``search`` in the middle of a fit, on its model and its optimizers, and leave them as they were."""
    memory = Remembered()
    memory.random_numbers()
    memory.attributes(run, inside=False)
    memory.attributes(run.trainer)
    memory.value(run.wrapped.module if run.wrapped is not None else run.module)
    memory.value(run.module)
    for holder in (*run.setup.optimizers, *(config.scheduler for config in run.setup.schedulers)):
        memory.value(holder)
    for plugin in run.plugins.values():
        memory.attributes(plugin)
    if run.data.datamodule is not None:
        memory.attributes(run.data.datamodule)
    for loader in (*run.data.given.values(), run.loop.loader if run.loop is not None else None):
        if loader is not None:
            memory.loader(loader)
    try:
        return search(run)
    finally:
        memory.restore()

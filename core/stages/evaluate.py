"""Evaluation alone: validate, test and predict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from core.checkpoint import content
from core.data.source import METHODS
from core.errors import InterlockError
from core.loops.evaluation import EvaluationLoop, Kind, Outcome
from core.loops.run import Run
from core.stages.base import Stage
from core.stages.fitness import need_methods

if TYPE_CHECKING:
    from core.trainer import Trainer


class Evaluation(NamedTuple):
    """One kind of evaluation: the step and its hooks, and which limit of the Trainer holds."""

    kind: Kind
    limit: str


EVALUATIONS = {
    "validate": Evaluation("validation", "limit_val_batches"),
    "test": Evaluation("test", "limit_test_batches"),
    "predict": Evaluation("predict", "limit_predict_batches"),
}


@dataclass
class EvaluateStage(Stage):
    """Runs one of :data:`EVALUATIONS`."""

    what: str = field(default="validate", kw_only=True)
    keep: bool = field(default=False, kw_only=True)
    name: ClassVar[str] = "validate"

    def __post_init__(self) -> None:
        self.name = self.what  # type: ignore[misc]  # the hooks setup and teardown are told this name

    @property
    def _evaluation(self) -> Evaluation:
        return EVALUATIONS[self.what]

    def check(self, trainer: Trainer) -> None:
        kind = self._evaluation.kind
        need_methods(self.module, (f"{kind}_step",), self.what)
        self.data.refuse_no_loaders({kind: "dataloaders"})
        if not self.data.has(kind, self.module):
            raise InterlockError(f"{self.what} has no data: pass dataloaders, or write {METHODS[kind]}()")
        self._check_checkpoint(trainer, content.WEIGHTS)

    def work(self, run: Run) -> Outcome:
        kind, limit = self._evaluation
        run.wrapped = run.hooks.wrap_model(run.router, list)
        if self.ckpt_path is not None:
            content.restore_weights(run, content.read(run, self.ckpt_path), self.ckpt_path)
        loaders = self.data.evaluation(kind)
        run.evaluation = EvaluationLoop(run, loaders, getattr(run.trainer, limit), kind, self.keep)
        return run.evaluation.run_once()

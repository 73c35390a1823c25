"""Training, with validation when it is due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch.optim import Optimizer

from core.checkpoint import content
from core.errors import InterlockError, InvalidCombination
from core.loggers.begin import begin_logging
from core.loops.evaluation import EvaluationLoop
from core.loops.run import Run
from core.loops.training import TrainingLoop
from core.optim import OptimizerMaker, OptimizerSetup, configure_optimizers
from core.optim.rules import module_party, refuse_sharded
from core.rules import violations
from core.stages.base import Stage
from core.stages.fitness import need_methods
from core.userhooks import has_step

if TYPE_CHECKING:
    from core.trainer import Trainer


@dataclass
class FitStage(Stage):
    """Training, with validation between epochs or inside them."""

    name: ClassVar[str] = "fit"

    def check(self, trainer: Trainer) -> None:
        need_methods(self.module, ("training_step", "configure_optimizers"), "fit")
        self.data.refuse_no_loaders({"train": "train_dataloaders", "validation": "val_dataloaders"})
        if not self.data.has("train", self.module):
            raise InterlockError("fit has no training data: pass train_dataloaders, or write train_dataloader()")
        if self.data.given.get("validation") is not None:
            need_methods(self.module, ("validation_step",), "fit with val_dataloaders")
        self._check_checkpoint(trainer, content.WHOLE)

    def work(self, run: Run) -> None:
        trainer = run.trainer
        training = self.data.training()
        self._wrap(run)
        run.evaluation = self._evaluation(run)
        loop = run.loop = TrainingLoop(run, training, run.evaluation)
        if self.ckpt_path is not None:
            checkpoint = content.read(run, self.ckpt_path)
            for line in content.differences(checkpoint, run.plan) if run.is_rank_zero else ():
                trainer.warn(f"checkpoint {self.ckpt_path!r}: {line}")
            content.restore(run, loop, checkpoint, self.ckpt_path)
        begin_logging(run)
        run.events.fire("on_fit_start")
        if loop.evaluation is not None and trainer.num_sanity_val_steps and self.ckpt_path is None:
            loop.evaluation.sanity_check(trainer.num_sanity_val_steps)
        with torch.autograd.set_detect_anomaly(trainer.detect_anomaly), trainer.doing("train"):
            loop.fit()
        run.events.fire("on_fit_end")

    def _wrap(self, run: Run) -> None:
        """Make the optimizers and let the strategy wrap the module."""

        def make_optimizers() -> list[Optimizer]:
            run.setup = configure_optimizers(self.module)
            _refuse_module(run, run.setup)
            return list(run.setup.optimizers)

        run.wrapped = run.hooks.wrap_model(run.router, OptimizerMaker(make_optimizers))
        run.setup.rebind(run.wrapped.optimizers)

    def _evaluation(self, run: Run) -> EvaluationLoop | None:
        if run.trainer.limit_val_batches == 0:
            return None
        if not has_step(self.module, "validation_step"):
            if self.data.has("validation", self.module) and run.is_rank_zero:
                run.trainer.warn(
                    f"{type(self.module).__name__} has no validation_step: its validation data are not read"
                )
            return None
        loaders = self.data.evaluation("validation")
        return EvaluationLoop(run, loaders, run.trainer.limit_val_batches) if loaders else None


def _refuse_module(run: Run, setup: OptimizerSetup) -> None:
    """Hold what the configured optimizers need against the plan, before the first step."""
    refuse_sharded(setup, run.module)
    broken = violations([*run.plan.parties, module_party(setup, run.module)])
    if broken:
        raise InvalidCombination(f"{run.plan.combination}", broken)

"""The training loop: epochs of micro-batches, validation when it is due, until a limit is reached."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from core.arguments import batches_within
from core.data.sharding import set_epoch
from core.data.stream import Micro, in_windows, length_of
from core.loops.evaluation import EvaluationLoop
from core.loops.limits import Limits, validate_every
from core.loops.position import LoaderPosition
from core.loops.run import Run
from core.loops.schedules import Schedules
from core.loops.step import TrainingStep, refuse_manual


class TrainingLoop:
    """Trains through epochs.

    Args:
        run: the run it belongs to.
        loader: this rank's training loader.
        evaluation: validates between epochs, or None.
    """

    def __init__(self, run: Run, loader: Any, evaluation: EvaluationLoop | None) -> None:
        trainer = run.trainer
        refuse_manual(run, trainer.accumulate_grad_batches)
        self.run, self.evaluation = run, evaluation
        self.progress = trainer.progress
        self.results = run.results(on_step=True, on_epoch=False)
        self.schedules = Schedules(run.setup.schedulers, run.module)
        self.step = TrainingStep(run, self.results, self.schedules)
        self.limits = Limits(run)
        self._limit = trainer.limit_train_batches
        if evaluation is not None:
            # a checkpoint that is written when validation is over holds what it did to the schedulers
            evaluation.when_known = self._step_plateaus
        self._plateaus_stepped = -1
        self.used_up = self._reloads = False
        self.use_loader(loader)

    def use_loader(self, loader: Any) -> None:
        """Read ``loader`` from the next epoch on."""
        trainer = self.run.trainer
        self.loader, self.position = loader, LoaderPosition(loader)
        self.total = self._agreed_total()
        window = trainer.accumulate_grad_batches
        if self.total == 0 and self._limit and self.run.is_rank_zero:
            trainer.warn("the training loader has no batches: fit trains nothing")
        if self.total is not None and 0 < self.total < window and self.run.is_rank_zero:
            trainer.warn(
                f"accumulate_grad_batches={window} is more than the {self.total} batches of an epoch: "
                f"each epoch is one window of {self.total}"
            )
        whole_epochs = trainer.check_val_every_n_epoch is not None
        self._validate_every = validate_every(trainer.val_check_interval, self.total, whole_epochs)

    def _agreed_total(self) -> int | None:
        """Return the batches per epoch, None if unknown; ranks whose loaders differ in length all take the shortest."""
        length = length_of(self.loader)
        own = batches_within(self._limit, length, "limit_train_batches")
        if length is None and own:
            own = None  # a limit is no promise that the loader has so many
        known = torch.tensor([-1 if own is None else own], device=self.run.device)
        shortest = int(self.run.hooks.reduce(known, "min"))
        longest = int(self.run.hooks.reduce(known, "max"))
        if shortest != longest:
            self.run.trainer.warn(
                f"rank {self.run.ranks.global_rank} has {'an unknown number of' if own is None else own} batches, "
                f"others from {shortest} to {longest}: each epoch ends with the shortest"
            )
        return None if shortest < 0 else shortest

    def fit(self) -> None:
        """Run all epochs."""
        run, trainer = self.run, self.run.trainer
        self._say_modes()
        trainer.results = self.results
        self.results.reset()
        self.results.outside_batches(True)
        run.events.fire("on_train_start")
        self.position.restore_random_state()
        with run.router.running(self.step.own_step):
            with self.limits.preemption.listening():
                while self.total != 0 and not self.used_up and not self.limits.before_epoch():
                    self._epoch()
            if self.limits.preempted:
                self.limits.preemption.save_and_requeue()
        run.events.fire("on_train_end")

    def _say_modes(self) -> None:
        """Say which parts stay in eval mode: whoever put them there may have meant it, so they are left there."""
        resting = [name or "the module" for name, part in self.run.module.named_modules() if not part.training]
        if resting and self.run.is_rank_zero:
            self.run.trainer.warn(
                f"training begins with {len(resting)} parts in eval mode, such as {resting[0]}, and they stay in it\n"
                "  hint: call train() on what is not meant to"
            )

    def _epoch(self) -> None:
        run, progress = self.run, self.progress
        trainer, step = run.trainer, self.step
        log_every = trainer.log_every_n_steps
        if self._reloads:  # here and not when an epoch ends, for it may have been the last
            self._reloads = False
            run.data.reload(self, progress.epoch)
        set_epoch(self.loader, progress.epoch)
        run.events.fire("on_train_epoch_start")
        self.results.outside_batches(False)
        skipped = False
        whole, logged = True, progress.global_step - progress.global_step % log_every
        for micro in self._micro_batches():
            if not step.micro_batch(micro, progress.batch):
                skipped = True
                break
            if progress.global_step >= logged + log_every:
                logged = progress.global_step - progress.global_step % log_every
                trainer.log_to_loggers(self.results.step_metrics(logger=True))
            if self._validate_every is not None:
                self._validate_inside(micro)
            if micro.ends_window and self.limits.after_window():
                whole = micro.ends_epoch
                break
        if not (progress.batch or skipped or trainer.reload_dataloaders_every_n_epochs):
            whole = False
            self._end_without_batches()
        self._after_epoch(whole)

    def _end_without_batches(self) -> None:
        """End training after an epoch in which the loader gave nothing: it would go on so for ever."""
        self.used_up = True
        self.run.trainer.warn(
            f"the training loader, a {type(self.loader).__name__}, gave no batch in epoch {self.progress.epoch}, so "
            "training ends\n  hint: give a DataLoader, or an iterable that starts again when it is read again"
        )

    def _micro_batches(self) -> Iterator[Micro]:
        trainer, done = self.run.trainer, self.progress.batch
        batches = trainer.profiler.batches("train_dataloader", self.position.begin(done))
        if self.total is None and isinstance(self._limit, int):
            batches = islice(batches, self._limit - done)
        together = self._all_have if self.run.ranks.world_size > 1 else None
        return in_windows(batches, trainer.accumulate_grad_batches, self.total, done, together)

    def _all_have(self, mine: bool) -> bool:
        """Tell whether every rank has a batch left; where one has none, the epoch ends on all."""
        return bool(self.run.hooks.reduce(torch.tensor([int(mine)], device=self.run.device), "min"))

    def _validate_inside(self, micro: Micro) -> None:
        """Validate within an epoch, when ``val_check_interval`` batches have passed."""
        if self.validates_next():
            # so that a checkpoint of this moment goes on with the next epoch
            self.progress.epoch_over = micro.ends_epoch
            self._validate()

    def validates_next(self) -> bool:
        """Tell, when a batch has ended, whether validation comes before the next one."""
        trainer, progress = self.run.trainer, self.progress
        every_epochs = trainer.check_val_every_n_epoch
        if self.evaluation is None or (every_epochs is not None and (progress.epoch + 1) % every_epochs):
            return False
        if self._validate_every is None:
            return progress.batch == self.total
        passed = progress.batch if every_epochs is not None else progress.batch + progress.epoch * (self.total or 0)
        return passed % self._validate_every == 0

    def _validate(self) -> None:
        if self.evaluation is not None:
            self.run.trainer.take(self.results)
            self.run.events.fire("on_validation_model_zero_grad")
            self.evaluation.run_once()
            self.run.trainer.results = self.results

    def _step_plateaus(self) -> None:
        """Step the schedulers that look at a metric, once in each epoch that is over."""
        progress = self.progress
        if progress.epoch_over and progress.stepped_in_epoch and self._plateaus_stepped != progress.epoch:
            self._plateaus_stepped = progress.epoch
            self.schedules.step("epoch", lambda: self.run.trainer.callback_metrics, plateau=True)

    def _after_epoch(self, whole: bool) -> None:
        """End an epoch; one that was broken off by a limit keeps its position and is not validated."""
        run, trainer, progress = self.run, self.run.trainer, self.progress
        progress.epoch_over = whole
        self.results.outside_batches(True)
        self.results.meet()
        trainer.take(self.results)
        trainer.log_to_loggers(self.results.epoch_metrics(logger=True))
        every = trainer.check_val_every_n_epoch
        if whole and self._validate_every is None and every is not None and (progress.epoch + 1) % every == 0:
            self._validate()
        self._step_plateaus()
        run.events.fire("on_train_epoch_end")
        # values logged by those hooks belong to the epoch that ends
        self.results.meet()
        trainer.take(self.results)
        trainer.log_to_loggers(self.results.epoch_metrics(logger=True, new=True))
        trainer.save_loggers()
        self.results.reset()
        if whole:
            progress.next_epoch()
            self._reloads = True

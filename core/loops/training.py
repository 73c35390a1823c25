"""The training loop. The order inside a step stands here, once and for all (see :mod:`core.hookspecs`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from core.arguments import batches_within
from core.data.sharding import set_epoch
from core.data.stream import Micro, in_windows, length_of
from core.errors import InterlockError
from core.loops.evaluation import EvaluationLoop
from core.loops.position import LoaderPosition
from core.loops.run import Run, loss_of, takes_index, without_wrapper
from core.loops.schedules import Schedules
from core.optim import clear_gradients, needs_closure


class TrainingLoop:
    """Trains through epochs until the limits of the Trainer are reached.

    Everything that can be decided once is decided in the constructor: which hooks can have an effect, which
    points have listeners, how gradients are cleared. A step then calls what is left.
    """

    def __init__(self, run: Run, loader: Any, evaluation: EvaluationLoop | None) -> None:
        trainer, hooks = run.trainer, run.hooks
        self.run, self.loader, self.evaluation = run, loader, evaluation
        self.progress = trainer.progress
        self.position = LoaderPosition(loader)
        self._limit = trainer.limit_train_batches
        self.total = self._agreed_total()
        self.results = run.results(on_step=True, on_epoch=False)
        self.schedules = Schedules(run.setup.schedulers)
        self._optimizers = run.setup.optimizers
        self._clear = [clear_gradients(optimizer) for optimizer in self._optimizers]
        self._window = trainer.accumulate_grad_batches
        self._clip = trainer.gradient_clip_val
        self._transfer = run.transfer
        assert run.wrapped is not None, "a run that trains has wrapped its module"
        self._wrapped = run.wrapped.module
        self._own_step = takes_index(run.module.training_step)  # type: ignore[arg-type]
        self._step = self._own_step if without_wrapper(self._wrapped) else self._wrapped
        self._context: AbstractContextManager[Any] | None = (
            hooks.forward_context() if hooks.changes("forward_context") else None
        )
        self._unscale = hooks.unscale_gradients if hooks.changes("unscale_gradients") else None
        self._skip_sync = hooks.skip_gradient_sync if hooks.changes("skip_gradient_sync") else None
        self._backward, self._optimizer_step = hooks.backward, hooks.optimizer_step
        self._stepped_in_epoch = False
        self._with_closure = any(needs_closure(optimizer) for optimizer in self._optimizers)
        self._listen()

    def _listen(self) -> None:
        listeners = self.run.events.listeners
        self._on_batch_start = listeners("on_train_batch_start")
        self._on_batch_end = listeners("on_train_batch_end")
        self._on_before_backward = listeners("on_before_backward")
        self._on_after_backward = listeners("on_after_backward")
        self._on_before_step = listeners("on_before_optimizer_step")
        self._on_before_clear = listeners("on_before_zero_grad")

    def _agreed_total(self) -> int | None:
        """Return the batches per epoch, None if unknown; ranks whose loaders differ in length all take the shortest."""
        own = None
        if length_of(self.loader) is not None:
            own = batches_within(self._limit, length_of(self.loader), "limit_train_batches")
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
        run = self.run
        self._wrapped.train()
        run.trainer.results = self.results
        run.events.fire("on_train_start")
        self.position.restore_random_state()
        with run.router.running(self._own_step):
            while not self._done():
                self._epoch()
        run.events.fire("on_train_end")

    def _done(self) -> bool:
        trainer, progress = self.run.trainer, self.progress
        out_of_epochs = 0 <= trainer.max_epochs <= progress.epoch
        return out_of_epochs or self._out_of_steps() or self._all_stop() or self.total == 0

    def _out_of_steps(self) -> bool:
        return 0 <= self.run.trainer.max_steps <= self.progress.global_step

    def _all_stop(self) -> bool:
        """Tell whether some rank wants to stop; all ranks then do."""
        wish = torch.tensor([int(self.run.trainer.should_stop)], device=self.run.device)
        return bool(self.run.hooks.reduce(wish, "max"))

    def _epoch(self) -> None:
        run, progress, trainer = self.run, self.progress, self.run.trainer
        log_every, alone = trainer.log_every_n_steps, run.ranks.world_size == 1
        self._stepped_in_epoch = False
        set_epoch(self.loader, progress.epoch)
        self.results.reset()
        run.events.fire("on_train_epoch_start")
        whole = True
        for micro in self._micro_batches():
            self._micro_batch(micro, progress.batch)
            if micro.ends_window:
                if progress.global_step % log_every == 0:
                    trainer.log_to_loggers(self.results.step_metrics(logger=True))
                # ranks could disagree about should_stop, so several of them look at it between epochs only
                if self._out_of_steps() or (alone and trainer.should_stop):
                    whole = micro.ends_epoch
                    break
        self._after_epoch(whole)

    def _micro_batches(self) -> Iterator[Micro]:
        done = self.progress.batch
        batches = self.position.begin(done)
        if self.total is None and isinstance(self._limit, int):
            batches = islice(batches, self._limit - done)
        together = self._all_have if self.run.ranks.world_size > 1 else None
        return in_windows(batches, self._window, self.total, done, together)

    def _all_have(self, mine: bool) -> bool:
        """Tell whether every rank has a batch left; where one has none, the epoch ends on all."""
        return bool(self.run.hooks.reduce(torch.tensor([int(mine)], device=self.run.device), "min"))

    def _micro_batch(self, micro: Micro, index: int) -> None:
        batch = micro.batch
        if self._transfer is not None:
            batch = self._transfer(batch, self.run.device)
        self.results.batch = batch
        for listener in self._on_batch_start:
            listener(batch, index)
        if self._with_closure:
            outputs = self._closure_step(batch, index)
        elif micro.ends_window or self._skip_sync is None:
            outputs = self._forward_backward(batch, index, micro.window)
        else:
            with self._skip_sync(self._wrapped):
                outputs = self._forward_backward(batch, index, micro.window)
        if micro.ends_window and not self._with_closure:
            self._end_window()
        self.progress.batch = index + 1
        for listener in self._on_batch_end:
            listener(outputs, batch, index)

    def _forward_backward(self, batch: Any, index: int, window: int) -> Any:
        if self._context is None:
            outputs = self._step(batch, index)
        else:
            with self._context:
                outputs = self._step(batch, index)
        loss = outputs if type(outputs) is Tensor else loss_of(outputs)
        if loss is None:
            self._refuse_no_loss()
            return None
        if window > 1:
            loss = loss / window
        for listener in self._on_before_backward:
            listener(loss)
        self._backward(loss)
        for listener in self._on_after_backward:
            listener()
        return outputs

    def _refuse_no_loss(self) -> None:
        if self.run.ranks.world_size > 1:
            raise InterlockError(
                f"training_step returned None on rank {self.run.ranks.global_rank}: the other ranks would wait for "
                "its gradients\n  hint: return a loss of zero that depends on the parameters, such as 0.0 * loss"
            )

    def _end_window(self) -> None:
        optimizers = self._optimizers
        finite = self._unscale is None or not optimizers or self._unscale(optimizers)
        for optimizer in optimizers:
            for listener in self._on_before_step:
                listener(optimizer)
            if finite:
                if self._clip is not None:
                    self._clip_gradients(optimizer)
                self._optimizer_step(optimizer, None)
        self._count(finite)
        self._clear_gradients()

    def _clip_gradients(self, optimizer: Optimizer) -> None:
        algorithm = self.run.trainer.gradient_clip_algorithm
        self.run.hooks.clip_gradients(self._wrapped, optimizer, self._clip, algorithm)

    def _count(self, stepped: bool) -> None:
        self.progress.global_step += 1
        if stepped:
            self._stepped_in_epoch = True
            if self.schedules.per_step:
                self.schedules.step("step", self.run.trainer.callback_metrics)
        else:
            self.progress.skipped_steps += 1

    def _clear_gradients(self) -> None:
        for listener in self._on_before_clear:
            for optimizer in self._optimizers:
                listener(optimizer)
        for clear in self._clear:
            clear()

    def _closure_step(self, batch: Any, index: int) -> Any:
        """One step of optimizers that evaluate the loss several times, such as LBFGS."""
        last: Any = None

        for optimizer, clear in zip(self._optimizers, self._clear, strict=True):

            def closure(optimizer: Optimizer = optimizer, clear: Callable[[], None] = clear) -> Tensor:
                nonlocal last
                clear()
                last = self._forward_backward(batch, index, 1)
                if self._clip is not None:
                    self._clip_gradients(optimizer)
                return loss_of(last)  # type: ignore[return-value]  # torch says so itself when it is None

            self._optimizer_step(optimizer, closure)
        self._count(True)
        self._clear_gradients()
        return last

    def _after_epoch(self, whole: bool) -> None:
        """End an epoch; one that was broken off by a limit keeps its position and is not validated."""
        run, trainer, progress = self.run, self.run.trainer, self.progress
        progress.epoch_over = whole
        if whole and self._stepped_in_epoch:
            self.schedules.step("epoch", trainer.callback_metrics, plateau=False)
        self.results.meet()
        trainer.take(self.results)
        trainer.log_to_loggers(self.results.epoch_metrics(logger=True))
        if whole and self.evaluation is not None and (progress.epoch + 1) % trainer.check_val_every_n_epoch == 0:
            self.evaluation.run_once()
            trainer.results = self.results
        if whole and self._stepped_in_epoch:
            self.schedules.step("epoch", trainer.callback_metrics, plateau=True)
        run.events.fire("on_train_epoch_end")
        if whole:
            progress.next_epoch()

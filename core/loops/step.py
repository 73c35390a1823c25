"""One training step. The order of its parts stands here, once and for all (see :mod:`core.hookspecs`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from core.data.stream import Micro
from core.errors import InterlockError
from core.loops.loss import loss_of, refuse_loss
from core.loops.optimizers import LoopOptimizer
from core.loops.run import Run, takes_index, without_wrapper
from core.loops.schedules import Schedules
from core.metrics import Results
from core.optim import clear_gradients, needs_closure
from core.userhooks import overridden

SKIP_TIMEOUT = 30.0
"""Seconds within which all ranks must ask to skip the rest of an epoch; they do so in the same step."""


class TrainingStep:
    """Runs micro-batches and ends windows.

    Everything that can be decided once is decided in the constructor: which hooks can have an effect, which
    points have listeners, which parts the module's author wrote, how gradients are cleared. A step then calls
    what is left.
    """

    def __init__(self, run: Run, results: Results, schedules: Schedules) -> None:
        hooks, trainer = run.hooks, run.trainer
        assert run.wrapped is not None, "a run that trains has wrapped its module"
        self.run, self.results, self.schedules = run, results, schedules
        self.progress = trainer.progress
        self.wrapped = run.wrapped.module
        self.own_step = takes_index(run.module.training_step)  # type: ignore[arg-type]
        self.window_starts = True
        """Whether no micro-batch of a window waits for its step."""
        self.ends_epoch = False
        """Whether the running micro-batch, or the newest, is the last of its epoch."""
        through: Callable[..., Any] = self.own_step if without_wrapper(self.wrapped) else self.wrapped
        self._step = trainer.profiler.wrap("training_step", through)
        self._optimizers = run.setup.optimizers
        self._clear = [clear_gradients(optimizer) for optimizer in self._optimizers]
        self._clip = trainer.gradient_clip_val
        self._transfer = run.transfer()
        self._context: AbstractContextManager[Any] | None = (
            hooks.forward_context() if hooks.changes("forward_context") else None
        )
        self._unscale = hooks.unscale_gradients if hooks.changes("unscale_gradients") else None
        self._skip_sync = hooks.skip_gradient_sync if hooks.changes("skip_gradient_sync") else None
        self._backward, self._optimizer_step = hooks.backward, hooks.optimizer_step
        self._manual = not getattr(run.module, "automatic_optimization", True)
        self._with_closure = any(needs_closure(optimizer) for optimizer in self._optimizers)
        self._listen()
        self._find_own_parts()

    def _listen(self) -> None:
        listeners = self.run.events.listeners
        self._on_batch_start = listeners("on_train_batch_start")
        self._on_batch_end = listeners("on_train_batch_end")
        self._tells = self.run.events.users_listen("on_train_batch_end")
        self._on_before_backward = listeners("on_before_backward")
        self._on_after_backward = listeners("on_after_backward")
        self._on_before_step = listeners("on_before_optimizer_step")
        self._on_before_clear = listeners("on_before_zero_grad")

    def _find_own_parts(self) -> None:
        """Look for parts of the step that the module's author wrote."""
        module = self.run.module
        self._own_optimizer_step = overridden(module, "optimizer_step")
        self._own_clear = overridden(module, "optimizer_zero_grad")
        self._own_clipping = overridden(module, "configure_gradient_clipping")
        self.run.plugins["strategy"].own_backward = overridden(module, "backward")  # type: ignore[attr-defined]
        # who looks at gradients before they go, or lets them go himself, finds them where peers have them: after the
        # step's forward and before its backward; otherwise they go at once, and their memory with them
        self._clear_late = bool(self._on_before_clear) or self._own_clear is not None

    def micro_batch(self, micro: Micro, index: int) -> bool:
        """Run one micro-batch, and the end of the window if it is the last; return False to skip the epoch's rest."""
        batch, self.ends_epoch = micro.batch, micro.ends_epoch
        if self._transfer is not None:
            batch = self._transfer(batch, self.run.device)
        self.results.batch = batch
        for listener in self._on_batch_start:
            if listener(batch, index) == -1:
                self.run.hooks.barrier("on_train_batch_start returned -1", SKIP_TIMEOUT)  # for it ends the epoch of all
                return False
        if self._manual:
            outputs = self._forward(batch, index)
        elif self._with_closure or (self._own_optimizer_step is not None and micro.ends_window):
            outputs = self._step_by_closure(batch, index, micro.window)
        elif micro.ends_window or self._skip_sync is None:
            outputs = self._forward_backward(batch, index, micro.window)
            if micro.ends_window:
                self.end_window()
        else:
            with self._skip_sync(self.wrapped):
                outputs = self._forward_backward(batch, index, micro.window)
        if micro.ends_epoch and self.progress.stepped_in_epoch:
            self.schedules.step("epoch", self._metrics, plateau=False)
        self.progress.batch = index + 1
        if self._tells:
            outputs = self._told(outputs, micro.window)
        for listener in self._on_batch_end:
            listener(outputs, batch, index)
        return True

    def _told(self, outputs: Any, window: int) -> Any:
        """Return what a step came to for those who are told: a dict with the loss that backward ran on, detached."""
        if outputs is None:
            return {}
        loss = loss_of(outputs) if isinstance(outputs, Tensor) or "loss" in outputs else None
        if loss is None:
            return outputs
        loss = loss.detach() if window == 1 or self._manual else loss.detach() / window
        return {"loss": loss} if isinstance(outputs, Tensor) else {**outputs, "loss": loss}

    def _forward(self, batch: Any, index: int) -> Any:
        if self._context is None:
            return self._step(batch, index)
        with self._context:
            return self._step(batch, index)

    def _forward_backward(self, batch: Any, index: int, window: int) -> Any:
        outputs = self._forward(batch, index)
        loss = outputs if type(outputs) is Tensor else loss_of(outputs)
        if loss is None:
            self._refuse_no_loss()
            return None
        if window > 1:
            loss = loss / window
        if self._clear_late and self.window_starts:
            self._clear_gradients()
        self.window_starts = False
        for listener in self._on_before_backward:
            listener(loss)
        try:
            self._backward(loss)
        except Exception as error:
            refuse_loss("training_step returned", loss, self.run.module.parameters(), error)
            raise
        for listener in self._on_after_backward:
            listener()
        return outputs

    def _refuse_no_loss(self) -> None:
        if self.run.ranks.world_size > 1:
            raise InterlockError(
                f"training_step returned None on rank {self.run.ranks.global_rank}: the other ranks would wait for "
                "its gradients\n  hint: return a loss of zero that depends on the parameters, such as 0.0 * loss"
            )

    def end_window(self) -> None:
        """Step, with the gradients that the window's micro-batches left; skip the step where none had a loss."""
        optimizers = self._optimizers
        if self.window_starts and optimizers:
            self._count(False)
            return
        finite = self._unscale is None or not optimizers or self._unscale(optimizers)
        for optimizer in optimizers:
            for listener in self._on_before_step:
                listener(optimizer)
            if finite:
                self._clip_gradients(optimizer)
                self._optimizer_step(optimizer, None)
        self._count(finite)

    def _clip_gradients(self, optimizer: Optimizer) -> None:
        if self._own_clipping is not None:
            self._own_clipping(optimizer, self._clip, self.run.trainer.gradient_clip_algorithm)
        elif self._clip is not None:
            algorithm = self.run.trainer.gradient_clip_algorithm
            self.run.hooks.clip_gradients(self.wrapped, optimizer, self._clip, algorithm)

    def _metrics(self) -> Mapping[str, Any]:
        return self.run.trainer.callback_metrics

    def _count(self, stepped: bool) -> None:
        progress = self.progress
        progress.global_step += 1
        self.window_starts = True
        if stepped:
            progress.stepped_in_epoch = True
            if self.schedules.per_step:
                self.schedules.step("step", self._metrics)
        else:
            progress.skipped_steps += 1
        if not self._clear_late:
            for clear in self._clear:
                clear()

    def _clear_gradients(self) -> None:
        for optimizer, clear in zip(self._optimizers, self._clear, strict=True):
            for listener in self._on_before_clear:
                listener(optimizer)
            if self._own_clear is not None:
                self._own_clear(self.progress.epoch, self.progress.batch, optimizer)
            else:
                clear()

    def _step_by_closure(self, batch: Any, index: int, window: int) -> Any:
        """A step whose optimizer, or whose module's own ``optimizer_step``, decides when the loss is evaluated.

        LBFGS evaluates it several times; each time gradients start afresh.
        """
        last: Any = None
        counted = evaluated = False
        for number, optimizer in enumerate(self._optimizers):

            def closure(optimizer: Optimizer = optimizer, number: int = number) -> Tensor | None:
                nonlocal last, evaluated
                evaluated = True
                if self._with_closure:
                    self._clear[number]()
                last = self._forward_backward(batch, index, window)
                return loss_of(last)

            def finish(optimizer: Optimizer = optimizer) -> bool:
                if self.window_starts:  # the step had no loss
                    return False
                finite = self._unscale is None or self._unscale([optimizer])
                for listener in self._on_before_step:
                    listener(optimizer)
                if finite:
                    self._clip_gradients(optimizer)
                return finite

            handle = LoopOptimizer(optimizer, self._optimizer_step, finish, self._with_closure)
            if self._own_optimizer_step is not None:
                self._own_optimizer_step(self.progress.epoch, index, handle, closure)
            else:
                handle.step(closure)
            counted = counted or handle.stepped
        if not evaluated and self._optimizers:
            raise InterlockError(
                f"{type(self.run.module).__name__}.optimizer_step left out the closure, so training_step was not run\n"
                "  hint: optimizer.step(closure=optimizer_closure), or optimizer_closure() where no step is wanted"
            )
        self._count(counted)
        return last


def refuse_manual(run: Run, window: int) -> None:
    """Refuse what the loop cannot do for a module that optimizes by itself.

    Raises:
        InterlockError: naming the setting.
    """
    if getattr(run.module, "automatic_optimization", True):
        return
    trainer, name = run.trainer, type(run.module).__name__
    asked = []
    if window > 1:
        asked.append(f"accumulate_grad_batches={window}")
    if trainer.gradient_clip_val is not None:
        asked.append(f"gradient_clip_val={trainer.gradient_clip_val}")
    if asked:
        raise InterlockError(
            f"{name} has automatic_optimization = False, so {' and '.join(asked)} would do nothing\n"
            "  hint: accumulate and clip in training_step, with self.clip_gradients(optimizer, ...)"
        )

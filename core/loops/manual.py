"""Optimization by the module itself, with the plugins still taking part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from core.errors import InterlockError
from core.loops.loss import refuse_loss
from core.loops.optimizers import LoopOptimizer, Toggle
from core.optim import needs_closure

if TYPE_CHECKING:
    from core.loops.run import Run
    from core.trainer import Trainer


class ManualOptimization:
    """What ``optimizers()``, ``manual_backward`` and the like come to in one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._toggle = Toggle()
        self._scales = run.hooks.changes("unscale_gradients")
        # a backward past the hook would leave gradients unscaled, or each rank with its own
        self._missing = self._scales or run.ranks.world_size > 1
        self._by_hand = not getattr(run.module, "automatic_optimization", True)
        self._finite: dict[int, bool] = {}
        """Of optimizers whose gradients were unscaled before their step: whether all were finite."""
        self._on_before_step = run.events.listeners("on_before_optimizer_step")
        self.handles = [
            LoopOptimizer(
                optimizer,
                run.hooks.optimizer_step,
                lambda optimizer=optimizer: self._finish(optimizer),  # type: ignore[misc]  # bound now
                needs_closure(optimizer),
                after_step=self._count,
                toggled=self._toggled,
            )
            for optimizer in run.setup.optimizers
        ]

    @classmethod
    def of(cls, trainer: Trainer) -> ManualOptimization:
        """Return the one of the running fit.

        Raises:
            InterlockError: outside a fit.
        """
        run = trainer._run
        if run is None:
            raise InterlockError("optimizers are there during fit only")
        if run.manual is None:
            run.manual = cls(run)
        return run.manual

    def _finish(self, optimizer: Optimizer) -> bool:
        """Do what comes between backward and the update; clipping is the module's own."""
        if self._missing:
            self._missing = False
            self._say_missing()
        finite = self._unscale(optimizer)
        del self._finite[id(optimizer)]
        for listener in self._on_before_step:
            listener(optimizer)
        return finite

    def _unscale(self, optimizer: Optimizer) -> bool:
        """Unscale once before a step, and tell whether all gradients are finite."""
        if id(optimizer) not in self._finite:
            self._finite[id(optimizer)] = bool(self._run.hooks.unscale_gradients([optimizer]))
        return self._finite[id(optimizer)]

    def _say_missing(self) -> None:
        """Say that no backward that plugins took part in came before a step."""
        text = "an optimizer steps, and manual_backward was not called"
        hint = "\n  hint: call self.manual_backward(loss) in place of loss.backward()"
        if self._scales:
            raise InterlockError(f"{text}: its gradients are not scaled as this precision needs them{hint}")
        self._run.trainer.warn(f"{text}: each rank steps with its own gradients, unless you exchanged them{hint}")

    def _count(self, stepped: bool) -> None:
        progress = self._run.trainer.progress
        progress.global_step += 1
        if stepped:
            progress.stepped_in_epoch = True
        else:
            progress.skipped_steps += 1

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Run the hook ``backward``; what torch's own takes beside the loss is passed on to it."""
        self._missing = False
        strategy: Any = self._run.plugins["strategy"]
        before = strategy.own_backward
        if args or kwargs:
            strategy.own_backward = lambda scalar: scalar.backward(*args, **kwargs)
        try:
            self._run.hooks.backward(loss)
        except Exception as error:
            refuse_loss("manual_backward was given", loss, self._run.module.parameters(), error)
            raise
        finally:
            strategy.own_backward = before

    def toggle(self, optimizer: Any) -> None:
        """See :meth:`core.module.Module.toggle_optimizer`."""
        self._toggle.on(_raw(optimizer), self._run.setup.optimizers)

    @contextmanager
    def _toggled(self, optimizer: Optimizer, sync_grad: bool) -> Iterator[None]:
        wrapped = self._run.wrapped
        assert wrapped is not None, "a run that trains has wrapped its module"
        self.toggle(optimizer)
        try:
            with nullcontext() if sync_grad else self._run.hooks.skip_gradient_sync(wrapped.module):
                yield
        finally:
            self.untoggle()

    def untoggle(self) -> None:
        """Put back what :meth:`toggle` took."""
        self._toggle.off()

    def clip(self, optimizer: Any, value: float | None, algorithm: str | None) -> None:
        """See :meth:`core.module.Module.clip_gradients`."""
        trainer, wrapped = self._run.trainer, self._run.wrapped
        value = trainer.gradient_clip_val if value is None else value
        if value and wrapped is not None:
            if self._by_hand and self._scales:  # else the loop has done it
                self._unscale(_raw(optimizer))
            algorithm = algorithm or trainer.gradient_clip_algorithm
            self._run.hooks.clip_gradients(wrapped.module, _raw(optimizer), value, algorithm)


def _raw(optimizer: Any) -> Optimizer:
    return getattr(optimizer, "optimizer", optimizer)  # type: ignore[no-any-return]

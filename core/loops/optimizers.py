"""Optimizers as a module sees them: a step of theirs goes through the run's hooks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor
from torch.optim import Optimizer


class LoopOptimizer:
    """Stands for an optimizer; everything but ``step`` is the optimizer's own.

    Args:
        optimizer: the one it stands for.
        step_hook: the hook ``optimizer_step``.
        finish: called between backward and the update: unscales, tells listeners, clips; returns whether to update.
        many_evaluations: whether the optimizer itself evaluates the closure, as LBFGS does.
        after_step: called with whether the parameters were updated.
        toggled: gives the context of :meth:`toggle_model`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        step_hook: Callable[[Optimizer, Callable[[], Tensor] | None], None],
        finish: Callable[[], bool],
        many_evaluations: bool = False,
        after_step: Callable[[bool], None] | None = None,
        toggled: Callable[[Optimizer, bool], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._optimizer, self._step_hook, self._finish = optimizer, step_hook, finish
        self._many_evaluations, self._after_step = many_evaluations, after_step
        self._toggled = toggled
        self.stepped = False

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer that this one stands for."""
        return self._optimizer

    def step(self, closure: Callable[[], Any] | None = None, **_: Any) -> Any:
        """Update the parameters, and return what ``closure``, called before for the loss and its gradients, returned.

        An optimizer that evaluates the closure itself may do so several times: the first value is returned.
        """
        values: list[Any] = []
        if self._many_evaluations:

            def evaluate() -> Any:
                values.append(closure() if closure is not None else None)
                self._finish()
                return values[-1]

            self._step_hook(self._optimizer, evaluate)
            self.stepped = True
        else:
            values.append(closure() if closure is not None else None)
            self.stepped = self._finish()
            if self.stepped:
                self._step_hook(self._optimizer, None)
        if self._after_step is not None:
            self._after_step(self.stepped)
        return values[0] if values else None

    def toggle_model(self, sync_grad: bool = True) -> AbstractContextManager[None]:
        """Let only this optimizer's parameters require gradients inside; ``sync_grad=False``: exchange none either."""
        return nullcontext() if self._toggled is None else self._toggled(self._optimizer, sync_grad)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    @property  # type: ignore[misc]  # users' code and torch's schedulers ask isinstance(..., Optimizer)
    def __class__(self) -> type:
        return type(self._optimizer)

    def __repr__(self) -> str:
        return repr(self._optimizer)


class Toggle:
    """Lets only one optimizer's parameters require gradients, and puts back what was there."""

    def __init__(self) -> None:
        self._before: list[tuple[Tensor, bool]] = []

    def on(self, chosen: Optimizer, optimizers: list[Optimizer]) -> None:
        """Take ``requires_grad`` from all parameters that ``chosen`` does not update."""
        kept = {id(parameter) for group in chosen.param_groups for parameter in group["params"]}
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if id(parameter) not in kept and parameter.requires_grad:
                        self._before.append((parameter, True))
                        parameter.requires_grad_(False)

    def off(self) -> None:
        """Give it back."""
        for parameter, required in self._before:
            parameter.requires_grad_(required)
        self._before.clear()

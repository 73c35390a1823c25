"""apex.amp as a precision."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import torch
from apex import amp
from torch import Tensor, nn
from torch.optim import Optimizer

from core.errors import InvalidArgument
from core.optim import OptimizerMaker, mark_as_watched
from core.plugins import Precision, WrappedModel, hookimpl

LEVELS = ("O0", "O1", "O2", "O3")


class ApexPrecision(Precision):
    """apex casts the model and scales the loss; the optimizers then hold its master parameters, which are clipped.

    At O2 and O3 apex casts what goes into the module's ``forward`` and what comes out, so that ``training_step`` has
    to call ``self(...)`` rather than the parts of the model.

    Args:
        level: one of O0 to O3.
        loss_scale: a number, ``"dynamic"``, or None for what the level has.
        keep_batchnorm_fp32: None for what the level has.
    """

    def __init__(
        self, level: str = "O2", loss_scale: float | str | None = None, keep_batchnorm_fp32: bool | None = None
    ) -> None:
        if level not in LEVELS:
            raise InvalidArgument(f"level {level!r} must be one of {', '.join(LEVELS)}")
        self.level, self.loss_scale, self.keep_batchnorm_fp32 = level, loss_scale, keep_batchnorm_fp32
        self._optimizers: list[Optimizer] = []
        self._masters_made = False

    @hookimpl(wrapper=True)
    def wrap_model(
        self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]
    ) -> Generator[None, WrappedModel, WrappedModel]:
        if isinstance(make_optimizers, OptimizerMaker):
            # after the move and before the wrap, which is where the owner makes the optimizers
            make_optimizers.then.append(lambda optimizers: self._initialize(module, optimizers))
        return (yield)

    def _initialize(self, module: nn.Module, optimizers: list[Optimizer]) -> list[Optimizer]:
        if not optimizers:
            return optimizers
        own = next(module.children())
        if any(parameter.dtype is torch.float16 for parameter in own.parameters()):
            own.float()  # an earlier run's weights, which apex takes in float32 only
        _, self._optimizers = amp.initialize(
            own,
            optimizers,
            opt_level=self.level,
            loss_scale=self.loss_scale,
            keep_batchnorm_fp32=self.keep_batchnorm_fp32,
            verbosity=0,
        )
        for optimizer in self._optimizers:
            mark_as_watched(optimizer)  # apex has replaced the step that the schedulers know
        return self._optimizers

    @hookimpl(wrapper=True)
    def backward(self, loss: Tensor) -> Generator[None, None, None]:
        if not self._masters_made:  # not before a checkpoint is loaded, for masters are copies of the weights
            for optimizer in self._optimizers:
                optimizer.zero_grad()
            self._masters_made = True
        with amp.scale_loss(loss, self._optimizers, delay_unscale=True) as scaled:
            # the owner runs backward on the loss as it is: let it start with the scale in place of 1
            (factor,) = torch.autograd.grad(scaled, loss)
            handle = loss.register_hook(lambda gradient: gradient * factor)  # type: ignore[no-untyped-call]
            try:
                yield
            finally:
                handle.remove()

    @hookimpl
    def unscale_gradients(self, optimizers: list[Optimizer]) -> bool:
        before = [vars(optimizer).get("step") for optimizer in optimizers]
        with amp.scale_loss(torch.zeros((), device=self.device), optimizers):
            pass  # at its end apex unscales what the window's backwards have left
        skipping = [
            optimizer
            for optimizer, step in zip(optimizers, before, strict=True)
            if vars(optimizer).get("step") is not step
        ]
        for optimizer in skipping:
            optimizer.step()  # not the optimizer's own: it skips, and then takes itself away
        return not skipping

    def state_dict(self) -> dict[str, Any]:
        return dict(amp.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        amp.load_state_dict(state)

"""Autocast to float16 with torch.amp.GradScaler."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from core.plugins import AutocastPrecision, hookimpl


class Float16MixedPrecision(AutocastPrecision):
    """Weights in float32, forward and loss under autocast to float16, the loss scaled.

    The scaler does the arithmetic (``scale``, ``unscale_``, ``update``); whether a step is skipped is decided
    here, because the step itself belongs to the strategy, and because ranks that hold different gradients
    have to decide the same.
    """

    dtype: ClassVar[torch.dtype] = torch.float16

    def __init__(self, init_scale: float = 65536.0, growth_interval: int = 2000) -> None:
        self.init_scale, self.growth_interval = init_scale, growth_interval
        self._waiting = 0

    @cached_property
    def scaler(self) -> torch.amp.GradScaler:
        """The scaler of this run, made when the device is known."""
        return torch.amp.GradScaler(self.device.type, init_scale=self.init_scale, growth_interval=self.growth_interval)

    @cached_property
    def _gradients_differ(self) -> bool:
        # a strategy that does not say that ranks step alike may let each of them meet an overflow of its own
        return self.plan.provides("sharded.gradients") or not self.plan.provides("steps.equal")

    @hookimpl(wrapper=True)
    def backward(self, loss: Tensor) -> Generator[None, None, None]:
        # backward then starts with the scale in place of 1, as if the loss had been multiplied; a loss computed in
        # float16 has a gradient in float16
        scale = self.scaler._scale
        handle = loss.register_hook(self._scaled if scale is None else scale.to(loss).mul)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            handle.remove()

    def _scaled(self, gradient: Tensor) -> Tensor:
        """Scale for the first time, which makes the scale on the device."""
        return self.scaler.scale(gradient).to(gradient.dtype)

    @hookimpl
    def unscale_gradients(self, optimizers: list[Optimizer]) -> bool:
        flags = [self._unscale(optimizer) for optimizer in optimizers]
        overflow = flags[0] if len(flags) == 1 else torch.stack(flags).amax(0)
        if self._gradients_differ:
            overflow = self.hooks.reduce(overflow, "max")
        if overflow.item() == 0:
            self._waiting = len(optimizers)
            return True
        for optimizer in optimizers:
            self._flag(optimizer).copy_(overflow)  # every rank backs off, whichever saw the overflow
        self.scaler.update()
        return False

    def _unscale(self, optimizer: Optimizer) -> Tensor:
        self.scaler.unscale_(optimizer)
        return self._flag(optimizer)

    def _flag(self, optimizer: Optimizer) -> Tensor:
        """Return the scaler's own flag for ``optimizer``, a float32 scalar: above 0 if a gradient is not finite.

        It is the tensor that ``update`` reads; torch's sharded scaler for FSDP reaches for the same one.
        """
        flags: dict[torch.device, Tensor] = self.scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        if not flags:  # no parameter has a gradient on this rank
            flags[self.device] = torch.zeros((), device=self.device)
        return next(iter(flags.values()))

    @hookimpl(wrapper=True)
    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Tensor] | None) -> Generator[None, None, None]:
        yield
        self._waiting -= 1
        if self._waiting == 0:  # the last of those that were unscaled together
            self.scaler.update()

    def state_dict(self) -> dict[str, Any]:
        return self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scaler.load_state_dict(state)

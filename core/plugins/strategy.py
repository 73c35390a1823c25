"""Base class of strategies: one process, nothing to exchange."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from core.hookspecs import ReduceOp, Shard, WrappedModel, hookimpl
from core.plugins.base import Plugin, does_nothing
from core.session import Ranks

T = TypeVar("T")


class Strategy(Plugin):
    """Train in this process alone. Every hook that a strategy owns is here with its single-process meaning."""

    @hookimpl
    def launch(self, run: Callable[[Ranks], T]) -> T:
        return run(Ranks())

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        module.to(self.device)
        return WrappedModel(module, make_optimizers())

    @hookimpl
    def shard_data(self) -> Shard:
        return Shard()

    @hookimpl
    @does_nothing
    def skip_gradient_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        return nullcontext()

    own_backward: Callable[[Tensor], None] | None = None
    """What the module's author wrote in place of ``loss.backward()``; set by the loop."""

    @hookimpl
    def backward(self, loss: Tensor) -> None:
        if self.own_backward is None:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.own_backward(loss)

    @hookimpl
    def clip_gradients(
        self, module: nn.Module, optimizer: Optimizer, value: float, algorithm: Literal["norm", "value"]
    ) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if algorithm == "norm":
            nn.utils.clip_grad_norm_(parameters, value)
        elif any(p.grad is not None for p in parameters):  # torch fails where there are none
            nn.utils.clip_grad_value_(parameters, value)

    @hookimpl
    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Tensor] | None) -> None:
        if closure is None:
            optimizer.step()
        else:
            optimizer.step(closure)  # type: ignore[arg-type]  # torch asks for float, its own LBFGS takes tensors

    @hookimpl
    @does_nothing
    def reduce(self, tensor: Tensor, op: ReduceOp) -> Tensor:
        return tensor

    @hookimpl
    @does_nothing
    def broadcast(self, value: Any) -> Any:
        return value

    @hookimpl
    @does_nothing
    def barrier(self, name: str, timeout: float | None) -> None:
        return None

    @hookimpl
    def gather_state(self, module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
        if self.ranks.global_rank != 0:
            return None
        return {"state_dict": module.state_dict(), "optimizer_states": [o.state_dict() for o in optimizers]}

    @hookimpl
    def restore_state(self, module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
        module.load_state_dict(state["state_dict"])
        for optimizer, saved in zip(optimizers, state.get("optimizer_states", ()), strict=False):
            optimizer.load_state_dict(saved)

    @hookimpl
    @does_nothing
    def conclude(self, outcome: T) -> T:
        return outcome

    @hookimpl
    def teardown(self) -> None:
        return None


def to_float_if_integer(tensor: Tensor) -> Tensor:
    """Return ``tensor``, as float64 if it holds integers or booleans, so that a mean of 3 and 4 is 3.5."""
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.to(torch.float64)

"""bfloat16 weights whose updates are computed in float32 and rounded stochastically."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from core.plugins import WeightsPrecision, WrappedModel, hookimpl
from interlock_stochastic.rounding import round_stochastically


class StochasticRounding(WeightsPrecision):
    """Weights in bfloat16 and no float32 copy of them between steps.

    With rounding to nearest, an update smaller than half a unit in a weight's last place is lost, every time; here
    it moves the weight with a small probability, so that many small updates add up.

    Each optimizer works on float32 stand-ins of the weights. They have memory only while it steps; its own state
    (momentum and the like) stays in float32.

    Args:
        seed: where the random bits start. All ranks draw the same bits, so equal weights stay equal.
    """

    dtype: ClassVar[torch.dtype] = torch.bfloat16

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._generator = torch.Generator().manual_seed(seed)
        self._weights: dict[nn.Parameter, nn.Parameter] = {}

    @hookimpl(wrapper=True)
    def wrap_model(
        self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]
    ) -> Generator[None, WrappedModel, WrappedModel]:
        module.to(self.dtype)
        wrapped = yield
        self._weights = {}
        for optimizer in wrapped.optimizers:
            for group in optimizer.param_groups:
                group["params"] = [self._stand_in(optimizer, weight) for weight in group["params"]]
        return wrapped

    def _stand_in(self, optimizer: Optimizer, weight: nn.Parameter) -> nn.Parameter:
        stand_in = nn.Parameter(_nothing(weight))
        self._weights[stand_in] = weight
        if weight in optimizer.state:  # some optimizers make their state when they are built
            state = optimizer.state.pop(weight)
            optimizer.state[stand_in] = {key: _to_float(value) for key, value in state.items()}
        return stand_in

    @hookimpl
    def unscale_gradients(self, optimizers: list[Optimizer]) -> bool:
        """Fill the stand-ins and hand them the gradients: what follows, clipping included, is done in float32."""
        for stand_in, weight in self._pairs(optimizers):
            if weight.grad is not None:
                stand_in.data = weight.detach().float()
                stand_in.grad, weight.grad = weight.grad.float(), None
        return True

    def _pairs(self, optimizers: list[Optimizer]) -> list[tuple[nn.Parameter, nn.Parameter]]:
        stand_ins = (p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"])
        return [(stand_in, self._weights[stand_in]) for stand_in in stand_ins]

    @hookimpl(wrapper=True)
    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Tensor] | None) -> Generator[None, None, None]:
        yield
        with torch.no_grad():
            for stand_in, weight in self._pairs([optimizer]):
                if stand_in.grad is not None:
                    weight.copy_(round_stochastically(stand_in, self._generator))
                    stand_in.grad, stand_in.data = None, _nothing(weight)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"])


def _nothing(weight: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.float32, device=weight.device)


def _to_float(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value

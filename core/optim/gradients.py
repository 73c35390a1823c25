"""Small questions to an optimizer that the loop asks often."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch.optim import Optimizer


def clear_gradients(optimizer: Optimizer) -> Callable[[], None]:
    """Return the cheapest function that sets the gradients of ``optimizer`` to None.

    ``Optimizer.zero_grad`` spends most of its time on a profiler range and on the other way of zeroing; where
    neither the class nor the instance replaces it, its effect is this loop.
    """
    if type(optimizer).zero_grad is not Optimizer.zero_grad or "zero_grad" in vars(optimizer):
        return optimizer.zero_grad
    groups = optimizer.param_groups

    def clear() -> None:
        for group in groups:
            for parameter in group["params"]:
                parameter.grad = None

    return clear


def needs_closure(optimizer: Optimizer) -> bool:
    """Tell whether ``step`` cannot be called without a closure, as with LBFGS."""
    parameter = inspect.signature(type(optimizer).step).parameters.get("closure")
    return parameter is not None and parameter.default is inspect.Parameter.empty


def state_bytes(optimizer: Optimizer) -> int:
    """Return the bytes of optimizer state that this process holds; a sharded optimizer's own part counts."""
    inner = getattr(optimizer, "optim", optimizer)  # fairscale's and torch's sharded optimizers keep theirs inside
    values = [value for state in inner.state.values() for value in state.values()]
    held = [value.to_local() if hasattr(value, "to_local") else value for value in values]
    return sum(v.numel() * v.element_size() for v in held if isinstance(v, torch.Tensor))

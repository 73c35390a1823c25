"""fairscale's OSS and ShardedDataParallel as a strategy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # fairscale is no longer changed; torch's advice to its authors helps no user
    from fairscale.nn.data_parallel import ShardedDataParallel
    from fairscale.optim import OSS

from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from core.optim.rebuild import constructor_settings
from core.parallel.process_per_device import ProcessPerDeviceStrategy
from core.plugins import WrappedModel, hookimpl


class ShardedStrategy(ProcessPerDeviceStrategy):
    """Every rank holds the whole model, but optimizer state and reduced gradients of its own part only.

    Args:
        broadcast_fp16: send updated parameters between ranks in float16.
        start_timeout, timeout: seconds, see :class:`ProcessPerDeviceStrategy`.
    """

    def __init__(self, broadcast_fp16: bool = False, start_timeout: float = 120.0, timeout: float = 600.0) -> None:
        super().__init__(start_timeout, timeout)
        self.broadcast_fp16 = broadcast_fp16
        self._by_hand: ShardedDataParallel | None = None
        self._kept_back = False

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        module.to(self.device)
        module = self.with_sync_batchnorm(module)
        optimizers: list[Optimizer] = [self._shard(optimizer) for optimizer in make_optimizers()]
        if not optimizers:
            return WrappedModel(module, [])
        # fairscale's gradient buckets break when gradients are set to None between steps; torch does that since 2.0
        wrapped = ShardedDataParallel(module, optimizers, reduce_buffer_size=0, warn_on_trainable_params_changed=False)
        by_hand = not getattr(next(module.children()), "automatic_optimization", True)
        self._by_hand, self._kept_back = (wrapped if by_hand else None), False
        return WrappedModel(wrapped, optimizers)

    @hookimpl
    def backward(self, loss: Tensor) -> None:
        wrapped = self._by_hand
        if wrapped is None:
            super().backward(loss)
        elif wrapped._should_accumulate_grads:
            self._kept_back = True
            super().backward(loss)
        else:
            self._backward_by_hand(wrapped, loss)

    def _backward_by_hand(self, wrapped: ShardedDataParallel, loss: Tensor) -> None:
        """Exchange the gradients of one of a step's backward passes.

        fairscale expects one after each forward: it would leave out what the first has exchanged, and wait for
        nothing. It reduces gradients as they are, so those that are exchanged already must not be among them.
        """
        wrapped._clear_counters()
        before = {} if self._kept_back else {p: p.grad for p in wrapped.parameters() if p.grad is not None}
        for parameter in before:
            parameter.grad = None
        super().backward(loss)
        for parameter, gradient in before.items():
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        self._kept_back = False

    def _shard(self, optimizer: Optimizer) -> OSS:
        """Rebuild ``optimizer`` with its state sharded: same class, parameter groups and settings."""
        settings = constructor_settings(optimizer)
        return OSS(optimizer.param_groups, optim=type(optimizer), broadcast_fp16=self.broadcast_fp16, **settings)

    @hookimpl
    def skip_gradient_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        return module.no_sync() if isinstance(module, ShardedDataParallel) else nullcontext()

    @hookimpl
    def clip_gradients(
        self, module: nn.Module, optimizer: Optimizer, value: float, algorithm: Literal["norm", "value"]
    ) -> None:
        own = own_parameters(optimizer)
        if algorithm == "value":
            if any(p.grad is not None for p in own):  # a rank may own nothing, and torch fails there
                nn.utils.clip_grad_value_(own, value)
            return
        # OSS.clip_grad_norm takes single precision only, and the parameters that had gradients at its first call
        norm = get_total_norm([p.grad for p in own if p.grad is not None]).to(self.device).double()
        clip_grads_with_norm_(own, value, self.hooks.reduce(norm**2, "sum").sqrt())

    @hookimpl
    def gather_state(self, module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
        for optimizer in optimizers:
            optimizer.consolidate_state_dict(recipient_rank=0)  # type: ignore[attr-defined]  # OSS; every rank
        try:
            return super().gather_state(module, optimizers)
        finally:
            for optimizer in optimizers:
                optimizer._all_states = []  # type: ignore[attr-defined]  # the whole state need not stay in memory

    @hookimpl
    def restore_state(self, module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
        super().restore_state(module, [], state)
        for optimizer, saved in zip(optimizers, state.get("optimizer_states", ()), strict=False):
            load_own_part(optimizer, saved)

    @hookimpl
    def teardown(self) -> None:
        self._by_hand = None
        super().teardown()


def own_parameters(optimizer: OSS) -> list[nn.Parameter]:
    """Return the parameters whose gradients and state this rank holds."""
    return [parameter for group in optimizer.optim.param_groups for parameter in group["params"]]


def load_own_part(optimizer: OSS, saved: dict[str, Any]) -> None:
    """Load this rank's part of the whole state ``saved``.

    It goes through the inner optimizer, which knows what belongs on which device; OSS.load_state_dict moves the step
    counts to the GPU, where Adam refuses them, and keeps a second copy of the state.
    """
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    number_of = dict(zip(parameters, numbers, strict=True))
    state = {
        place: saved["state"][number_of[parameter]]
        for place, parameter in enumerate(own_parameters(optimizer))
        if number_of[parameter] in saved["state"]
    }
    groups, start = [], 0
    for group, saved_group in zip(optimizer.optim.param_groups, saved["param_groups"], strict=True):
        end = start + len(group["params"])
        groups.append({**saved_group, "params": list(range(start, end))})
        start = end
    optimizer.optim.load_state_dict({"state": state, "param_groups": groups})
    OSS._sync_param_groups(optimizer.optim.param_groups, optimizer.param_groups)

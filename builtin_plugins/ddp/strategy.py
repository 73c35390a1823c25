"""torch's DistributedDataParallel as a strategy."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from builtin_plugins.ddp.unused import parameter_names, refuse_unused
from core.parallel.process_per_device import ProcessPerDeviceStrategy
from core.plugins import WrappedModel, hookimpl


class DDPStrategy(ProcessPerDeviceStrategy):
    """Every rank holds the whole model; gradients are averaged while backward runs.

    Args:
        find_unused_parameters: look in each step for parameters that the loss does not use.
        static_graph: promise that every step uses the same parameters.
        gradient_as_bucket_view: let gradients share memory with the exchange buffers.
        start_timeout, timeout: seconds, see :class:`ProcessPerDeviceStrategy`.
    """

    def __init__(
        self,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        gradient_as_bucket_view: bool = False,
        start_timeout: float = 120.0,
        timeout: float = 600.0,
    ) -> None:
        super().__init__(start_timeout, timeout)
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self._wrapped: DistributedDataParallel | None = None
        self._backward_is_inside = False
        self._names: list[str] = []

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        module.to(self.device)
        module = self.with_sync_batchnorm(module)
        optimizers = make_optimizers()
        if not optimizers:  # nothing is trained, so there are no gradients to average
            return WrappedModel(module, [])
        wrapped = self._wrapped = DistributedDataParallel(
            module,
            device_ids=None if self.device.index is None else [self.device.index],
            find_unused_parameters=self.find_unused_parameters,
            static_graph=self.static_graph,
            gradient_as_bucket_view=self.gradient_as_bucket_view,
        )
        self._names = parameter_names(wrapped)
        atexit.register(self._let_go)
        if not getattr(next(module.children()), "automatic_optimization", True):
            self._prepare_in_backward(module, wrapped)
        return WrappedModel(wrapped, optimizers)

    def _prepare_in_backward(self, step: nn.Module, wrapped: DistributedDataParallel) -> None:
        """Get ready to exchange gradients in each backward, which the module's own step calls."""
        self._backward_is_inside = True
        step.register_forward_hook(lambda *_: setattr(wrapped, "require_backward_grad_sync", False))
        wrapped.register_forward_hook(lambda *_: setattr(wrapped, "require_backward_grad_sync", True))

    @hookimpl
    def backward(self, loss: Tensor) -> None:
        wrapped = self._wrapped
        if self._backward_is_inside and wrapped is not None and wrapped.require_backward_grad_sync:
            unused = self.find_unused_parameters and not self.static_graph
            wrapped.require_forward_param_sync = True
            wrapped.reducer._rebuild_buckets()
            wrapped.reducer.prepare_for_backward([loss] if unused else [])
        super().backward(loss)
        if wrapped is not None and not self.find_unused_parameters and not self.static_graph:
            refuse_unused(wrapped, self._names, type(self))

    @hookimpl
    def skip_gradient_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()

    @hookimpl
    def teardown(self) -> None:
        self._let_go()
        super().teardown()

    def _let_go(self) -> None:
        """Drop torch's reducer while others hold the process group too.

        As the group's last holder it would join the group's threads without giving up the interpreter lock, which
        such a thread may be waiting for: a program with a second run, or at its end, would hang.
        """
        atexit.unregister(self._let_go)
        if self._wrapped is not None:
            self._wrapped.reducer = self._wrapped.logger = None  # type: ignore[assignment]
            self._wrapped = None

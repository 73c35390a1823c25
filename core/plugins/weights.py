"""Precisions that change the weights themselves."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import nn
from torch.optim import Optimizer

from core.data.nested import map_tensors
from core.hookspecs import WrappedModel, hookimpl
from core.plugins.precision import Precision


class WeightsPrecision(Precision):
    """Keep weights, floating-point inputs and tensors made inside the step in ``dtype``.

    A subclass sets ``dtype`` and declares ``wraps=("wrap_model", "transfer_batch")``.
    """

    dtype: ClassVar[torch.dtype]

    @hookimpl(wrapper=True)
    def wrap_model(
        self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]
    ) -> Generator[None, WrappedModel, WrappedModel]:
        module.to(self.dtype)  # before the owner builds optimizers from the parameters
        return (yield)

    @hookimpl(wrapper=True)
    def transfer_batch(self, batch: Any, device: torch.device) -> Generator[None, Any, Any]:
        moved = yield
        return map_tensors(moved, lambda t: t.to(self.dtype) if t.is_floating_point() else t)

    @hookimpl
    def forward_context(self) -> AbstractContextManager[Any]:
        return _DefaultDtype(self.dtype)


class _DefaultDtype:
    """Set torch's default dtype inside, and put back what was there before; can be entered again and again."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._before = torch.get_default_dtype()

    def __enter__(self) -> None:
        self._before = torch.get_default_dtype()
        torch.set_default_dtype(self._dtype)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(self._before)

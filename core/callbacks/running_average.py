"""An average of a module's weights over training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from core.errors import InterlockError


class Weights(nn.Module):
    """The parameters and buffers of a module without the rest of it, so that they alone are copied."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        for number, parameter in enumerate(module.parameters()):
            self.register_parameter(f"parameter_{number}", parameter)
        for number, buffer in enumerate(module.buffers()):
            self.register_buffer(f"buffer_{number}", buffer)


def refuse_parts(module: nn.Module) -> None:
    """Refuse a module of which each rank holds a part.

    Raises:
        InterlockError: with what to do.
    """
    if any(hasattr(parameter, "full_tensor") for parameter in module.parameters()):
        raise InterlockError(
            "weights cannot be averaged where each rank holds a part of every parameter\n"
            "  hint: take a strategy in which every rank holds the whole model"
        )


class RunningAverage:
    """torch's AveragedModel of the weights of ``module``; before the first update it equals them.

    Args:
        module: the module; its weights stay where they are.
        device: where the average is kept; None where the module is.
        use_buffers: average buffers too, rather than copy them.
        how: ``avg_fn`` or ``multi_avg_fn`` of AveragedModel; by default all updates count the same.

    Raises:
        InterlockError: where a rank holds only a part of each weight.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str | int | None = None,
        use_buffers: bool = True,
        **how: Callable[..., Any] | None,
    ) -> None:
        refuse_parts(module)
        self._module, self._weights = module, Weights(module)
        self._averaged = AveragedModel(self._weights, device, use_buffers=use_buffers, **how)  # type: ignore[arg-type]
        own = [*self._weights.parameters(), *self._weights.buffers()]
        inner = self._averaged.module
        self._pairs: list[tuple[Tensor, Tensor]] = list(zip(own, [*inner.parameters(), *inner.buffers()], strict=True))

    @property
    def count(self) -> int:
        """How many updates it holds."""
        return int(self._averaged.n_averaged)

    def update(self) -> None:
        """Take the module's weights as they are now."""
        self._averaged.update_parameters(self._weights)

    @torch.no_grad()
    def swap(self) -> None:
        """Put the average into the module, and the module's weights in its place."""
        for own, average in self._pairs:
            kept = own.clone()
            own.copy_(average)
            average.copy_(kept)

    @torch.no_grad()
    def copy_to_module(self) -> None:
        """Put the average into the module."""
        for own, average in self._pairs:
            own.copy_(average)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the average under the names of the module's ``state_dict()``."""
        averages = {id(own): average for own, average in self._pairs}
        state: Mapping[str, Tensor] = self._module.state_dict(keep_vars=True)
        return {name: averages[id(own)].detach() for name, own in state.items() if id(own) in averages}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor], count: int) -> None:
        """Take back what :meth:`state_dict` returned after ``count`` updates."""
        averages = {id(own): average for own, average in self._pairs}
        for name, own in self._module.state_dict(keep_vars=True).items():
            if name in state and id(own) in averages:
                averages[id(own)].copy_(state[name])
        self._averaged.n_averaged.fill_(count)

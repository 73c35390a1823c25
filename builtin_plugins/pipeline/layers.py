"""The layers of a sequential: found, cut into stages, and stood in for where they live elsewhere."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from core.errors import InterlockError, InvalidArgument


def find_sequential(module: nn.Module) -> tuple[nn.Sequential, str]:
    """Return the sequential that is cut, and the prefix of its names in the module's state.

    Raises:
        InvalidArgument: when it does more than to run its layers one after the other.
    """
    own = getattr(module, "sequential_module", None)
    sequential, prefix = (own, "sequential_module.") if isinstance(own, nn.Sequential) else (module, "")
    assert isinstance(sequential, nn.Sequential), "the plan has held module.sequential against the module"
    if type(sequential).forward is not nn.Sequential.forward:
        raise InvalidArgument(
            f"{type(sequential).__name__} has a forward of its own, so its layers are more than a sequence\n"
            "  hint: put the layers into a plain nn.Sequential, as the attribute sequential_module"
        )
    return sequential, prefix


def cut(sequential: nn.Sequential, balance: Sequence[int]) -> list[nn.Sequential]:
    """Return the stages: sequentials over the same layers, under the same names.

    Raises:
        InvalidArgument: when two stages would share a parameter, which can live in one place only.
    """
    named = list(sequential._modules.items())  # named_children would leave out a layer that comes again
    ends = list(accumulate(balance))
    parts = [named[end - count : end] for end, count in zip(ends, balance, strict=True)]
    stages = [nn.Sequential(OrderedDict((name, layer) for name, layer in part if layer is not None)) for part in parts]
    seen: dict[int, tuple[int, str]] = {}
    for number, stage in enumerate(stages):
        for name, tensor in layer_tensors(stage).items():
            where, first = seen.setdefault(id(tensor), (number, name))
            if where != number:
                raise InvalidArgument(
                    f"layers of stage {where} and stage {number} share a tensor ({first} and {name}), "
                    "which can live in one process only\n  hint: choose a balance that keeps them together"
                )
    return stages


def layer_tensors(layers: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers of ``layers``, themselves, by name."""
    state = layers.state_dict(keep_vars=True)
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    for name, tensor in tensors.items():
        if is_lazy(tensor):
            raise InvalidArgument(f"{name} has no shape yet; run the lazy layer once before it is cut into stages")
    return tensors


def placeholder(tensor: Tensor) -> Tensor:
    """Return a tensor of the same shape, type and device that takes the memory of one element."""
    return torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)


class StandIns:
    """Layers whose tensors live elsewhere: shapes stay here, for optimizers and names, and the memory goes.

    Args:
        layers: their parameters stay the same objects.
        where: who has them, for the error of one who calls a layer here.
    """

    def __init__(self, layers: nn.Sequential, where: str) -> None:
        self.layers, self.where = layers, where
        self.tensors = layer_tensors(layers)
        for tensor in self.tensors.values():
            tensor.data = placeholder(tensor)
        self._undo = [replace_forward(layer, self._refuse) for layer in layers]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise InterlockError(
            f"this layer lives on {self.where} during the run; call the whole sequential, not its layers one by one"
        )

    def fill(self, state: Mapping[str, Any]) -> None:
        """Take the layers back, with ``state`` from where they were."""
        for undo in self._undo:
            undo()
        for tensor in self.tensors.values():
            tensor.data = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        self.layers.load_state_dict(dict(state))


def replace_forward(module: nn.Module, forward: Callable[..., Any]) -> Callable[[], None]:
    """Let calls of this one module run ``forward``; return the function that puts back what was there."""
    before = vars(module).get("forward")
    module.forward = forward

    def undo() -> None:
        if before is None:
            vars(module).pop("forward", None)
        else:
            module.forward = before

    return undo


def own_parameters(layers: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of ``layers`` that are trained."""
    return [parameter for parameter in layers.parameters() if parameter.requires_grad]


def parameters_outside(module: nn.Module, sequential: nn.Sequential) -> Iterator[str]:
    """Yield the names of the module's trained parameters that are in no layer of the sequential."""
    inside = {id(parameter) for parameter in sequential.parameters()}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in inside:
            yield name


def move_rest(module: nn.Module, sequential: nn.Sequential, device: torch.device) -> None:
    """Move what ``module`` has beside the layers of ``sequential``."""
    module._apply(lambda tensor: tensor.to(device), recurse=False)  # type: ignore[no-untyped-call]
    if module is not sequential:
        for child in module.children():
            if child is not sequential:
                child.to(device)

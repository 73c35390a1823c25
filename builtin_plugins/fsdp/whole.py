"""Make a sharded module an ordinary one again: whole parameters, no hooks, its own classes.

torch has no inverse of ``fully_shard``. What it adds to a module is known from comparing the module before and after:
a class in front of its own, hooks, and a few attributes; these are taken away again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from torch import nn
from torch.distributed import fsdp
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


class Original:
    """Remembers what a module was like before it was sharded."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._attributes = {part: set(vars(part)) for part in module.modules()}

    def restore(self) -> None:
        """Put the module back, with the parameters that it has now; every rank calls it."""
        for part in self._module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()
        whole: dict[nn.Parameter, nn.Parameter] = {}
        for part, attributes in self._attributes.items():
            for name, parameter in part._parameters.items():
                if isinstance(parameter, DTensor):
                    if parameter not in whole:
                        full = parameter.full_tensor().detach().clone()
                        whole[parameter] = nn.Parameter(full, requires_grad=parameter.requires_grad)
                    part._parameters[name] = whole[parameter]
            for name in set(vars(part)) - attributes:
                if name.startswith(("_fsdp_", "_is_fsdp_", "__composable_api_")):
                    del vars(part)[name]
            _remove_hooks(part)
            if isinstance(part, FSDPModule):
                part.__class__ = type(part).__mro__[2]  # FSDPX, FSDPModule, X
            _forget(part)


def is_sharded(module: nn.Module) -> bool:
    """Tell whether some part of the module is under ``fully_shard``, or cut in another way."""
    marked = any("_is_fsdp_managed_module" in vars(part) for part in module.modules())
    return marked or any(isinstance(parameter, DTensor) for parameter in module.parameters())


def _remove_hooks(part: nn.Module) -> None:
    for hooks in [value for name, value in vars(part).items() if name.endswith("_hooks") and isinstance(value, dict)]:
        for key in [key for key, hook in hooks.items() if _is_of_fsdp(hook)]:
            del hooks[key]


def _is_of_fsdp(hook: Callable[..., Any]) -> bool:
    while isinstance(hook, partial):
        hook = hook.func
    inner = getattr(hook, "hook", hook)  # load_state_dict hooks are kept in a wrapper
    owner = getattr(inner, "__self__", inner)
    module = getattr(inner, "__module__", None) or type(owner).__module__
    return str(module).startswith(fsdp.__name__) or type(owner).__module__.startswith(fsdp.__name__)


def _forget(part: nn.Module) -> None:
    """Let torch shard the module again: it keeps a table of those that it has sharded."""
    with suppress(ImportError, AttributeError):
        from torch.distributed import _composable_state

        _composable_state._module_state_mapping.pop(part, None)

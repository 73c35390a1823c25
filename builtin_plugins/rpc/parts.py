"""Modules that live on another rank, used like local ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.nn.api.remote_module import RemoteModule

from builtin_plugins.pipeline.layers import placeholder
from builtin_plugins.rpc.handles import Handle, ask, wait
from core.data.nested import map_tensors
from core.errors import InterlockError

TIMEOUT = 600.0
_counts: dict[str, int] = {}


class _Likeness(nn.Module):
    """A module of the names and shapes of a remote one, whose tensors take no memory and are loaded elsewhere."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _Likeness:
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        _, strict, missing = rest[:3]
        for name in (*self._parameters, *self._buffers):
            if strict and prefix + name not in state_dict:
                missing.append(prefix + name)


class Pending(NamedTuple):
    """What a part still computes."""

    future: Any
    worker: str
    device: torch.device

    def wait(self) -> Any:
        """Return the result on the device that the input was on, or raise what the part raised."""
        return map_tensors(wait(self.future, self.worker), lambda tensor: tensor.to(self.device))


class RemotePart(_Likeness):
    """A module on another rank. Make it in ``setup`` or ``configure_model``, where the RPC world is there.

    Its parameters here are stand-ins: they have the remote ones' names and shapes, so that optimizers and
    checkpoints take them in, and no values. Several ranks that run the loop share the part if they make it under
    the same name, as they do when all make their parts in the same order.

    Args:
        worker: the name of the rank that has the module.
        make: returns the module, on that rank.
        args, kwargs: what ``make`` is called with.
        name: what the part is called there; by default the name of ``make`` and a number.
    """

    def __init__(
        self, worker: str, make: Callable[..., nn.Module], *args: Any, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__()
        self._become(worker, name or _next_name(worker, make), "create", make, args, kwargs)

    @classmethod
    def of(cls, module: Any) -> RemotePart:
        """Return the part for a torch ``RemoteModule``, or for a remote reference to a module."""
        reference = module.get_module_rref() if isinstance(module, RemoteModule) else module
        part = cls.__new__(cls)
        nn.Module.__init__(part)
        worker = reference.owner_name()
        part._become(worker, _next_name(worker, RemoteModule), "adopt", reference)
        return part

    def _become(self, worker: str, name: str, how: str, *what: Any) -> None:
        self._handle = Handle(worker, name, TIMEOUT)
        modules, tensors = ask(worker, how, name, *what, timeout=TIMEOUT)
        for inner, training in modules:
            _grow(self, inner).training = training
        for inner, size, dtype, learning in tensors:
            *path, own = inner.split(".")
            stand_in = placeholder(torch.zeros((), dtype=dtype).expand(size))
            holder = _grow(self, ".".join(path))
            if learning is None:
                holder.register_buffer(own, stand_in)
            else:
                holder.register_parameter(own, nn.Parameter(stand_in, requires_grad=learning))
        self.register_state_dict_post_hook(_fetch)  # type: ignore[no-untyped-call]

    @property
    def handle(self) -> Handle:
        """Whom to ask about it."""
        return self._handle

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module where it lives."""
        return self.forward_async(*args, **kwargs).wait()

    def forward_async(self, *args: Any, **kwargs: Any) -> Pending:
        """Start the module where it lives; ``wait()`` of what this returns gives the result."""
        self._handle.mirror(self)
        devices: list[torch.device] = []

        def to_host(tensor: Tensor) -> Tensor:
            devices.append(tensor.device)
            return tensor.cpu()  # workers know their devices, not those of others

        given = map_tensors((args, kwargs), to_host)
        future = self._handle.run(*given)
        return Pending(future, self._handle.worker, devices[0] if devices else torch.empty(0).device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RemotePart:
        """Pass on a change of type; the device is the worker's."""
        dtype = fn(torch.zeros(0)).dtype
        changed = {
            name: tensor
            for name, tensor in self.state_dict_here().items()
            if tensor.is_floating_point() and tensor.dtype != dtype
        }
        if changed and dtype != torch.float32:
            self._handle.ask("to_type", dtype)
            for tensor in changed.values():
                tensor.data = placeholder(tensor.data.to(dtype))
        return self

    def state_dict_here(self) -> dict[str, Tensor]:
        """Return the stand-ins by name."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        own = {name.removeprefix(prefix): value for name, value in state_dict.items() if name.startswith(prefix)}
        if own:
            self._handle.ask("load", own)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _fetch(part: RemotePart, state_dict: dict[str, Any], prefix: str, _: Any) -> None:
    for name, value in part.handle.ask("state").items():
        state_dict[prefix + name] = value


def _grow(root: nn.Module, path: str) -> nn.Module:
    """Return the module at a dotted path, made if it is not there."""
    module = root
    for name in path.split(".") if path else ():
        if name not in module._modules:
            module.add_module(name, _Likeness())
        inner = module._modules[name]
        assert inner is not None, "made here"
        module = inner
    return module


def _next_name(worker: str, make: Callable[..., nn.Module]) -> str:
    base = getattr(make, "__name__", type(make).__name__)
    _counts[f"{worker}/{base}"] = number = _counts.get(f"{worker}/{base}", 0) + 1
    return f"{base}{number}"


def adopt_remote_modules(module: nn.Module, mains: int) -> None:
    """Replace every torch ``RemoteModule`` in ``module`` by a part, whose parameters optimizers see.

    Raises:
        InterlockError: when several ranks run the loop, each of which would have a module of its own.
    """
    for name, child in list(module._modules.items()):
        if isinstance(child, RemoteModule):
            if mains > 1:
                raise InterlockError(
                    f"{name} is a RemoteModule, and each of the {mains} ranks that run the loop would train its own\n"
                    "  hint: make a RemotePart, which they share by its name"
                )
            module._modules[name] = RemotePart.of(child)
        elif child is not None and not isinstance(child, RemotePart):
            adopt_remote_modules(child, mains)


def remote_parts(module: nn.Module) -> list[RemotePart]:
    """Return the parts of ``module`` that live elsewhere."""
    return [part for part in module.modules() if isinstance(part, RemotePart)]

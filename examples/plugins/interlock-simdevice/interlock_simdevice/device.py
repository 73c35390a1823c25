"""A torch device in pure Python: torch's PrivateUse1 slot, its storages standing for storages in host memory.

A tensor of this device is an ordinary ``torch.Tensor`` with shape, strides and a storage that torch believes to be
elsewhere; :mod:`interlock_simdevice.memory` knows the host storage behind it. One fallback serves every operation: it
looks through the device's tensors at their host memory, lets the CPU compute, and hands the outcome back to the
device. Because views, gradients and copies share storages just as on any device, autograd and DDP need nothing special.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from numbers import Number
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from interlock_simdevice.memory import HOST, HOST_KERNEL, NAME, let_storages_be_copied, memory, on_device, on_host

_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
"""Operations that take indices from host memory too, as on every device."""


class _Call:
    """One operation: the device's tensors among its arguments, and the way back for its results."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.seen: dict[int, tuple[Tensor, Tensor, tuple[int, int]]] = {}
        self.by_storage: dict[int, Tensor] = {}
        self.elsewhere: Tensor | None = None

    def to_host(self, argument: Any) -> Any:
        if isinstance(argument, torch.device):
            return HOST if argument.type == NAME else argument
        if not isinstance(argument, Tensor):
            return argument
        if argument.device.type != NAME:
            self.elsewhere = argument if argument.ndim else self.elsewhere
            return argument
        host = on_host(argument)
        storage = host.untyped_storage()
        self.seen[id(host)] = (argument, host, _extent(storage))
        self.by_storage[storage._cdata] = argument
        return host

    def check_devices(self) -> None:
        if self.seen and self.elsewhere is not None and self.op._schema.name not in _INDEXING:
            raise RuntimeError(
                f"{self.op._schema.name} was given tensors on two devices, {NAME}:0 and {self.elsewhere.device}"
            )

    def to_device(self, result: Any) -> Any:
        if not isinstance(result, Tensor):
            return result
        if id(result) in self.seen:  # in place, or out=
            return self.seen[id(result)][0]
        host = result.untyped_storage()
        base = self.by_storage.get(host._cdata)  # there is one if the result is a view
        return on_device(result, memory.adopt(host) if base is None else base.untyped_storage())

    def follow_reshaped(self) -> None:
        """Let the device's tensors follow those that the operation resized or turned in place."""
        for tensor, host, extent in self.seen.values():
            storage = host.untyped_storage()
            if _extent(storage) != extent:
                on_device(host, memory.adopt(storage), tensor)
            elif (host.shape, host.stride()) != (tensor.shape, tensor.stride()):
                on_device(host, tensor.untyped_storage(), tensor)


def _extent(storage: torch.UntypedStorage) -> tuple[int, int]:
    return storage.data_ptr(), storage.nbytes()


def run_on_host(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run ``op`` over the memory behind its arguments; the fallback for every operation of the device."""
    call = _Call(op)
    args, kwargs = tree_map(call.to_host, (_numbers_as_tensors(op, args), kwargs))
    call.check_devices()
    result = op(*args, **kwargs)
    call.follow_reshaped()
    return tree_map(call.to_device, result)


def _numbers_as_tensors(op: Any, args: tuple[Any, ...]) -> list[Any]:
    """Make tensors again of the Python numbers that torch hands over where an operation takes a tensor."""
    tensors = [argument for argument in args if isinstance(argument, Tensor)]
    changed = list(args)
    for position, (argument, wanted) in enumerate(zip(args, op._schema.arguments, strict=False)):
        if isinstance(argument, Number) and isinstance(wanted.type, torch.TensorType):
            kind = torch.result_type(tensors[0], argument) if tensors else None
            changed[position] = torch.tensor(argument, dtype=kind)
    return changed


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy between host and device, or within the device; also from a view that torch conjugates or negates lazily."""
    plain = on_host(source) if source.device.type == NAME else source
    if source is not plain:
        plain = plain.conj() if source.is_conj() else plain
        plain = torch._neg_view(plain) if source.is_neg() else plain
    (on_host(target) if target.device.type == NAME else target).copy_(plain)
    return target


def _convolution(*args: Any) -> Any:
    return run_on_host(torch.ops.aten.convolution.default, *args)


def _convolution_backward(gradient: Tensor, inputs: Tensor, weight: Tensor, *settings: Any) -> Any:
    bias_sizes = [gradient.shape[1]]
    return run_on_host(torch.ops.aten.convolution_backward.default, gradient, inputs, weight, bias_sizes, *settings)


def _natively(op: Any) -> Callable[..., Any]:
    """Run torch's own kernel, which looks at shape and storage only."""
    return lambda *args: op.redispatch(HOST_KERNEL, *args)


def _torch_module() -> ModuleType:
    """Return what torch and users find as ``torch.sim``."""
    module = ModuleType(f"torch.{NAME}")
    functions: dict[str, Callable[..., Any]] = {
        # torch asks before it uses streams and pinned memory, which a device in Python cannot have
        "is_available": lambda: False,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device": lambda device: contextlib.nullcontext(),
        "synchronize": lambda device=None: None,
        "get_amp_supported_dtype": lambda: [],
        "_is_in_bad_fork": lambda: False,
        # random numbers come from the host's generator
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "memory_allocated": lambda: memory.used,
        "max_memory_allocated": lambda: memory.peak,
    }
    vars(module).update(functions)
    return module


_libraries: list[torch.library.Library] = []


def register() -> None:
    """Make the device known to torch; once per process, and there is no way back.

    Raises:
        RuntimeError: when another package has taken the one place that torch has for a device from outside.
    """
    if _libraries:
        return
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", NAME):
        raise RuntimeError(f"torch has one place for a device from outside, and {taken!r} has taken it")
    torch.utils.backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_torch_module())
    every = torch.library.Library("_", "IMPL")
    every.fallback(run_on_host, "PrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    aten.impl("_copy_from", _copy_from, "PrivateUse1")
    for lazy in ("Conjugate", "Negative"):  # a copy is what resolves them, so it must not ask to have them resolved
        aten.impl("_copy_from", torch.library.fallthrough_kernel, lazy)
    aten.impl("convolution_overrideable", _convolution, "PrivateUse1")
    aten.impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse1")
    for overload in ("source_Storage", "source_Storage_storage_offset", "source_Tensor"):
        aten.impl(f"set_.{overload}", _natively(getattr(torch.ops.aten.set_, overload)), "PrivateUse1")
    let_storages_be_copied()
    _libraries.extend((every, aten))
    # torch's device threads for Python backends abort the program when it ends while they wait
    torch.autograd.set_multithreading_enabled(False)

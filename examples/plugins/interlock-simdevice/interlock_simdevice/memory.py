"""The memory of the simulated device: which host storage lies behind each of its storages, and how much that is."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

NAME = "sim"
HOST = torch.device("cpu")
HOST_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_MB = 2**20


class Memory:
    """Keeps host storages alive for as long as the device's storages that stand for them."""

    def __init__(self) -> None:
        self._behind: dict[int, torch.UntypedStorage] = {}
        self.limit: int | None = None
        self.used = self.peak = 0

    def set_limit(self, limit: int | None) -> None:
        """Allow ``limit`` bytes from now on, and begin to measure the peak anew."""
        self.limit, self.peak = limit, self.used

    def adopt(self, host: torch.UntypedStorage) -> torch.UntypedStorage:
        """Return a storage of the device that stands for ``host``.

        Raises:
            torch.OutOfMemoryError: when the budget does not hold it.
        """
        size = host.nbytes()
        if self.limit is not None and self.used + size > self.limit:
            raise torch.OutOfMemoryError(
                f"{NAME} out of memory: {size / _MB:.2f} MB asked for, "
                f"{self.used / _MB:.2f} of {self.limit / _MB:.2f} MB in use"
            )
        storage = torch._C._construct_storage_from_data_pointer(host.data_ptr(), torch.device(NAME, 0), size)
        self._behind[storage._cdata] = host
        self.used += size
        self.peak = max(self.peak, self.used)
        weakref.finalize(storage, self._release, storage._cdata, size).atexit = False
        return storage

    def _release(self, key: int, size: int) -> None:
        del self._behind[key]
        self.used -= size

    def host(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        """Return the host storage that ``storage`` of the device stands for."""
        host = self._behind.get(storage._cdata)
        if host is None:  # torch made it, over memory of another that is alive
            host = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), HOST, storage.nbytes())
        return host


memory = Memory()


def on_host(tensor: Tensor) -> Tensor:
    """Return a host tensor over the same memory as ``tensor``, which is on the device."""
    plain = torch.empty(0, dtype=tensor.dtype)
    host = memory.host(tensor.untyped_storage())
    return plain.set_(host, tensor.storage_offset(), tensor.shape, tensor.stride())


def on_device(host: Tensor, storage: torch.UntypedStorage, tensor: Tensor | None = None) -> Tensor:
    """Make ``tensor``, or a new one, stand for ``host`` inside a ``storage`` of the device."""
    if tensor is None:
        tensor = torch._C._acc.create_empty_tensor([0], host.dtype)
    place = (tensor, storage, host.storage_offset(), host.shape, host.stride())
    torch.ops.aten.set_.source_Storage_storage_offset.redispatch(HOST_KERNEL, *place)
    return tensor


def let_storages_be_copied() -> None:
    """Serve ``copy.deepcopy`` and ``torch.load``, which make storages by themselves; Python can give no allocator."""
    on_other_devices = torch.UntypedStorage.clone

    def clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
        if storage.device.type != NAME:
            return on_other_devices(storage)
        return memory.adopt(memory.host(storage).clone())

    torch.UntypedStorage.clone = clone
    torch.serialization.register_package(
        5,  # before torch's own
        lambda storage: NAME if storage.device.type == NAME else None,
        lambda storage, location: memory.adopt(storage) if location.startswith(NAME) else None,
    )

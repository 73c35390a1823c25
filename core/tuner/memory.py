"""Out of memory: how it shows, and how memory is given back."""

from __future__ import annotations

import errno
import gc
from typing import Any

import torch

TEXTS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_NOT_SUPPORTED",  # cuDNN's word where it found no room for its workspace
    "RESOURCE_EXHAUSTED",
)
"""What the message of a RuntimeError says where an allocation failed."""


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether ``error`` says that memory ran out, on a device or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part.lower() in text for part in TEXTS)


def give_back(device: torch.device, *, whole: bool) -> None:
    """Free what nobody holds any more, in Python and in torch's cache of device memory.

    ``whole`` looks through everything that Python holds, which takes a while; else only through what is new.
    """
    gc.collect(2 if whole else 0)
    backend: Any = torch.get_device_module(device)
    empty = getattr(backend, "empty_cache", None)
    if callable(empty):
        empty()

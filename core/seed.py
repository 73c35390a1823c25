"""Random numbers: one call seeds everything, and one dictionary holds the state of every generator."""

from __future__ import annotations

import os
import random
import sys
from typing import Any

import torch

from core.errors import InvalidArgument

SEED_VARIABLE = "INTERLOCK_SEED"
LARGEST = 2**32 - 1


def seed_everything(seed: int) -> int:
    """Seed Python, NumPy (if it is loaded) and torch on every device; return ``seed``.

    The seed is also kept for the order of distributed samplers, which has to be the same on every rank.

    Raises:
        InvalidArgument: unless ``0 <= seed < 2**32``, which is NumPy's range.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST:
        raise InvalidArgument(f"seed {seed!r} must be a whole number from 0 to {LARGEST}")
    os.environ[SEED_VARIABLE] = str(seed)  # processes that this one starts inherit it
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    torch.manual_seed(seed)
    return seed


def sampler_seed() -> int:
    """Return the seed for the order of distributed samplers: the one given to :func:`seed_everything`, else 0."""
    return int(os.environ.get(SEED_VARIABLE, "0"))


def get_rng_state() -> dict[str, Any]:
    """Return the state of every generator of this process in tensors and plain types."""
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": [version, list(internal), gauss],
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [str(name), [int(k) for k in keys], int(position), int(has_gauss), float(cached)]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["device"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Put back what :func:`get_rng_state` returned; generators of libraries that are not loaded are left out."""
    torch.set_rng_state(state["torch"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in state:
        name, keys, position, has_gauss, cached = state["numpy"]
        numpy.random.set_state((name, keys, position, has_gauss, cached))
    devices = state.get("device")
    if devices and torch.cuda.is_available() and len(devices) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(devices)

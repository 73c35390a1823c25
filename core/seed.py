"""Random numbers: one call seeds everything, and one dictionary holds the state of every generator."""

from __future__ import annotations

import os
import random
import sys
from typing import Any

import torch

from core.errors import InvalidArgument

SEED_VARIABLE = "INTERLOCK_SEED"
WORKERS_VARIABLE = "INTERLOCK_SEED_WORKERS"
LARGEST = 2**32 - 1
STRIDE = 2654435761
"""Between the seeds of ranks: far apart, and no two of fewer than 2**32 ranks alike."""


def seed_everything(seed: int | None = None, workers: bool = False, verbose: bool = True) -> int:
    """Seed Python, NumPy (if it is loaded) and torch on every device; return ``seed``.

    The seed is also kept for the order of distributed samplers, which has to be the same on every rank.

    Args:
        seed: None takes that of an earlier call, by this program or by the one that started it, else 0.
        workers: let the loaders' workers of different ranks draw different numbers in runs; with one seed for all
            ranks they draw the same otherwise. Workers of one rank differ anyway.
        verbose: accepted and without effect here.

    Raises:
        InvalidArgument: unless ``0 <= seed < 2**32``, which is NumPy's range.
    """
    if seed is None:
        seed = sampler_seed()
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST:
        raise InvalidArgument(f"seed {seed!r} must be a whole number from 0 to {LARGEST}")
    os.environ[SEED_VARIABLE] = str(seed)  # processes that this one starts inherit it
    os.environ[WORKERS_VARIABLE] = str(int(workers))
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    torch.manual_seed(seed)
    return seed


def sampler_seed() -> int:
    """Return the seed for the order of distributed samplers: the one given to :func:`seed_everything`, else 0."""
    return int(os.environ.get(SEED_VARIABLE, "0"))


def seeds_workers() -> bool:
    """Tell whether :func:`seed_everything` was asked to let the workers of ranks differ."""
    return os.environ.get(WORKERS_VARIABLE) == "1"


class WorkerSeed:
    """What a loader calls in each of its workers: seeds it by the loader's draw, the worker and the rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __call__(self, worker: int) -> None:
        """Seed; torch has given each worker of this rank a seed of its own before."""
        seed = (torch.initial_seed() + self.rank * STRIDE) % (LARGEST + 1)
        random.seed(seed)
        torch.manual_seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed)


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

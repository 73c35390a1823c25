"""Log how much the device is used."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from core.callbacks.base import Callback

if TYPE_CHECKING:
    from core.trainer import Trainer


class DeviceStatsMonitor(Callback):
    """Hands the memory and load of rank 0's device to the loggers, every ``log_every_n_steps`` steps.

    An accelerator may have a method ``device_stats(device)`` that returns numbers by name; otherwise the memory
    statistics that torch keeps of the device are taken. The values are called ``device/...`` and ``host/...``.

    Args:
        cpu_stats: also log the host's load and memory; None does so only where the device is the host.
    """

    def __init__(self, cpu_stats: bool | None = None) -> None:
        self.cpu_stats = cpu_stats
        self._seen_step = -1

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if step != self._seen_step and step % trainer.log_every_n_steps == 0 and trainer.is_global_zero:
            trainer.log_to_loggers(self.read(trainer))
        self._seen_step = step

    def read(self, trainer: Trainer) -> dict[str, float]:
        """Return the statistics of now."""
        run = trainer._run
        assert run is not None, "called inside a run"
        own = getattr(run.plugins["accelerator"], "device_stats", None)
        stats = own(run.device) if callable(own) else memory_stats(run.device)
        values = {f"device/{name}": float(value) for name, value in stats.items()}
        if self.cpu_stats or (self.cpu_stats is None and not stats):
            values |= {f"host/{name}": value for name, value in host_stats().items()}
        return values


def memory_stats(device: torch.device) -> dict[str, float]:
    """Return what torch knows of the device's memory, in MB; nothing for the host."""
    backend: Any = torch.get_device_module(device)
    ask = getattr(backend, "memory_stats", None)
    known = ask(device) if callable(ask) else {}
    wanted = {
        "allocated_bytes.all.current": "memory_allocated_mb",
        "allocated_bytes.all.peak": "memory_peak_mb",
        "reserved_bytes.all.current": "memory_reserved_mb",
    }
    stats = {name: known[key] / 1e6 for key, name in wanted.items() if key in known}
    retries = {"num_alloc_retries": "alloc_retries", "num_ooms": "out_of_memory"}
    return stats | {name: float(known[key]) for key, name in retries.items() if key in known}


def host_stats() -> dict[str, float]:
    """Return the load of the host and the memory of this process, as far as the system says."""
    stats: dict[str, float] = {}
    if hasattr(os, "getloadavg"):
        stats["load_1min"] = os.getloadavg()[0]
    try:
        import resource
    except ImportError:  # not on Windows
        return stats
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stats["process_peak_mb"] = peak / 1e6 if sys.platform == "darwin" else peak / 1e3
    return stats

"""A simulated device: tensors that are not on the CPU as far as torch knows, although they lie in host memory.

This module is all that ``list`` and ``explain`` read, so it imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.declarations import AcceleratorDeclaration, Option, Package

if TYPE_CHECKING:
    from interlock_simdevice.accelerator import SimAccelerator

__all__ = ["DECLARATION", "SimAccelerator"]

DECLARATION = AcceleratorDeclaration(
    name="sim",
    summary="a simulated device with a memory of its own, to find misplaced tensors and memory needs without a GPU",
    implementation="interlock_simdevice.accelerator:SimAccelerator",
    probe="interlock_simdevice.probe:probe",
    api=1,
    # no autocast.*: torch has no list of operations for a device that it does not know
    provides=(
        "simdevice:memory_budget",
        "dtype.float64",
        "dtype.float16",
        "dtype.bfloat16",
        "collective.gloo",
    ),
    # the names of torch's registration functions are private and have changed before
    packages=(Package("torch", ">=2.13"),),
    options=(Option("memory_mb", None, "bytes / 2**20 that a process may hold on the device; None has no limit"),),
    # above cpu, so that a test environment which has it installed trains on it without a change to the scripts
    preference=2,
)


def __getattr__(name: str) -> object:
    """Import the implementation only for those who ask for it."""
    if name == "SimAccelerator":
        from interlock_simdevice.accelerator import SimAccelerator

        return SimAccelerator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

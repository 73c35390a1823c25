"""Which XLA runtime this process would open, and how many devices it has, without opening it (torch-free)."""

from __future__ import annotations

import os
from pathlib import Path

from core.declarations import Availability

RUNTIME = "PJRT_DEVICE"
"""The variable that names the runtime: TPU, CPU, NEURON and others."""
TPU_FILES = ("accel*", "vfio/[0-9]*")
"""The files below /dev by which the chips of a TPU host are reached, older and newer ones."""


def probe() -> Availability:
    """Return the number of devices of the runtime; None where only opening it would tell."""
    runtime = runtime_name()
    if not runtime:
        return Availability(0, f"no TPU found; {RUNTIME}=CPU runs XLA on the processors, to try a program")
    text = os.environ.get(f"{runtime}_NUM_DEVICES", "")
    if text and not (text.isdigit() and int(text)):
        return Availability(0, f"{runtime}_NUM_DEVICES={text!r} is not a number of devices")
    if text:
        return Availability(int(text))
    return Availability(1 if runtime == "CPU" else None)


def runtime_name() -> str:
    """Return the runtime that the environment asks for, ``"TPU"`` where the host has one, or an empty string."""
    return os.environ.get(RUNTIME, "").upper() or ("TPU" if has_tpu() else "")


def has_tpu() -> bool:
    """Tell whether this host has TPU chips; the package that drives them has to be there as well."""
    from importlib.util import find_spec  # asked for only where no variable decides

    if find_spec("libtpu") is None:
        return False
    return any(True for pattern in TPU_FILES for _ in Path("/dev").glob(pattern))


def is_asked_for() -> bool:
    """Tell whether a runtime is named, or a TPU is here."""
    return bool(runtime_name())


def has_collectives() -> bool:
    """Tell whether processes can exchange tensors over the runtime; over that of the CPU the first exchange aborts."""
    return runtime_name() not in ("", "CPU")

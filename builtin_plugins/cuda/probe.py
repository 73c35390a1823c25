"""Count GPUs without importing torch and without opening one: no context, no memory on the device."""

from __future__ import annotations

import ctypes
import os
import re
from importlib.util import find_spec
from pathlib import Path

from core.declarations import Availability


def probe() -> Availability:
    """Return the number of GPUs this process may use: NVML's count, narrowed by CUDA_VISIBLE_DEVICES."""
    if not torch_has_cuda():
        return Availability(0, "the installed torch is built without CUDA")
    present = count_with_nvml()
    if present is None:
        return Availability(0, "no NVIDIA driver found (libnvidia-ml.so.1 does not load)")
    visible = visible_devices(present, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if present and not visible:
        return Availability(0, f"CUDA_VISIBLE_DEVICES hides all {present} GPUs")
    return Availability(visible, "" if visible else "the NVIDIA driver reports no GPU")


def torch_has_cuda() -> bool:
    """Read torch's version file as text; importing torch takes a second."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version_file = Path(spec.origin).with_name("version.py")
    text = version_file.read_text() if version_file.is_file() else ""
    return re.search(r"^cuda\s*(:[^=]+)?=\s*['\"]", text, re.MULTILINE) is not None


def count_with_nvml() -> int | None:
    """Return the driver's device count, or None where there is no driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    count = ctypes.c_uint(0)
    try:
        return int(count.value) if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 else None
    finally:
        nvml.nvmlShutdown()


def visible_devices(present: int, variable: str | None) -> int:
    """Apply CUDA_VISIBLE_DEVICES as the driver does: entries count up to the first that names no device."""
    if variable is None:
        return present
    visible = 0
    for entry in (part.strip() for part in variable.split(",")):
        names_one = entry.isdigit() and int(entry) < present
        if not names_one and not entry.startswith(("GPU-", "MIG-")):
            break
        visible += 1
    return visible

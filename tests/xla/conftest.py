"""Run this folder's tests on the XLA runtime of the processors, where torch_xla is installed, and open it first."""

import os
from importlib.util import find_spec

if find_spec("torch_xla") is not None:
    os.environ.setdefault("PJRT_DEVICE", "CPU")  # before the accelerator's declaration is read

    from torch_xla import runtime

    runtime.global_runtime_device_count()  # before any backward pass: torch does not take up devices after its first

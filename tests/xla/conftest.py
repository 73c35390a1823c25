"""Run this folder's tests on the XLA runtime of the processors, where torch_xla is installed."""

import os
from importlib.util import find_spec

if find_spec("torch_xla") is not None:
    os.environ.setdefault("PJRT_DEVICE", "CPU")  # before the accelerator's declaration is read

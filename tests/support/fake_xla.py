"""A stand-in for torch_xla in host memory: it notes what is asked of it, and can refuse to open a device."""

from __future__ import annotations

MAIN = """
import os
import torch
from torch_xla import runtime

EVENTS = []


def device(index=None):
    if os.environ.get("FAKE_XLA_CLOSED"):
        raise AssertionError("a device was opened")
    EVENTS.append("open")
    return torch.device("cpu")


def sync(wait=False):
    EVENTS.append("mark step")


def launch(fn, args=(), debug_single_process=False):
    EVENTS.append("launch alone" if debug_single_process else "launch")
    fn(0, *args)
"""
RUNTIME = """
def global_ordinal():
    return 0

local_ordinal = global_ordinal

def world_size():
    return 2

local_process_count = world_size

def addressable_device_count():
    return 1

def global_runtime_device_count():
    return 1
"""
MODEL = """
from torch_xla import EVENTS

def set_rng_state(seed, device=None):
    pass

def get_rng_state(device=None):
    return 0

def all_reduce(operation, inputs, scale=1.0):
    if isinstance(inputs, list):
        EVENTS.append("reduce")
        return None
    rows = operation == "sum" and inputs.dim() > 0 and len(inputs) == 2
    return inputs + inputs.flip(0) if rows else inputs.clone()  # the other rank has what this one has

def collective_broadcast(tensors):
    EVENTS.append("broadcast weights")

def rendezvous(tag, payload=b""):
    return [payload, payload]
"""


def write(folder):
    """Write the package and its metadata into ``folder``."""
    package = folder / "torch_xla"
    (package / "core").mkdir(parents=True)
    for name, source in {"__init__": MAIN, "runtime": RUNTIME, "core/__init__": "", "core/xla_model": MODEL}.items():
        (package / f"{name}.py").write_text(source)
    metadata = folder / "torch_xla-2.9.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_xla\nVersion: 2.9.0\n")

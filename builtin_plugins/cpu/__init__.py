"""The host's processors as an accelerator."""

import os

from core.declarations import API, AcceleratorDeclaration, Replaces

FORK = ("fork",) if hasattr(os, "fork") else ()
"""Provided where the system has it."""

DECLARATION = AcceleratorDeclaration(
    name="cpu",
    summary="the processors of this machine",
    implementation="builtin_plugins.cpu.accelerator:CPUAccelerator",
    probe="builtin_plugins.cpu.probe:probe",
    api=API,
    aliases=("host",),
    provides=(
        "device.cpu",
        "dtype.float64",
        "dtype.float16",
        "dtype.bfloat16",
        "autocast.float16",
        "autocast.bfloat16",
        "grad_scaler",
        "collective.gloo",
        "rpc",
        "replicas",
        *FORK,
    ),
    replaces=tuple(
        Replaces(name, 'accelerator="cpu", or install a package that brings an accelerator plugin for it')
        for name in ("mps", "hpu", "ipu", "npu", "xpu")
    ),
    preference=1,
)

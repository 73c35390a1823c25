"""NVIDIA GPUs as an accelerator."""

import os

from core.declarations import API, AcceleratorDeclaration

FORK = ("fork",) if hasattr(os, "fork") else ()
"""Provided where the system has it; a process that has opened a GPU cannot be forked, which is seen at the launch."""

DECLARATION = AcceleratorDeclaration(
    name="cuda",
    summary="NVIDIA GPUs",
    implementation="builtin_plugins.cuda.accelerator:CUDAAccelerator",
    probe="builtin_plugins.cuda.probe:probe",
    api=API,
    aliases=("gpu",),
    provides=(
        "device.cuda",
        "devices.indexed",
        "dtype.float64",
        "dtype.float16",
        "dtype.bfloat16",
        "autocast.float16",
        "autocast.bfloat16",
        "grad_scaler",
        "collective.nccl",
        "collective.gloo",
        "sync_batchnorm.kernel",
        "cudnn.benchmark",
        "rpc",
        "replicas",
        *FORK,
    ),
    wraps=("teardown",),
    preference=100,
)

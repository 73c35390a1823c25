"""XLA devices, such as TPUs, as an accelerator."""

from builtin_plugins.xla.probe import has_collectives, is_asked_for
from core.declarations import API, AcceleratorDeclaration, Package

COLLECTIVE = ("collective.xla",) if has_collectives() else ()
"""Provided where the runtime that the environment names lets processes exchange tensors; that of the CPU does not."""

DECLARATION = AcceleratorDeclaration(
    name="xla",
    summary="XLA devices, such as TPUs, through torch_xla",
    implementation="builtin_plugins.xla.accelerator:XLAAccelerator",
    probe="builtin_plugins.xla.probe:probe",
    api=API,
    aliases=("tpu",),
    provides=(
        "device.xla",
        "devices.indexed",
        "dtype.float64",
        "dtype.bfloat16",
        "autocast.bfloat16",
        "spmd",
        *COLLECTIVE,
    ),
    packages=(Package("torch_xla", ">=2.6", extra="xla"),),
    wraps=("optimizer_step", "teardown"),
    # being installed is no reason to be taken before others
    preference=50 if is_asked_for() else 0,
)

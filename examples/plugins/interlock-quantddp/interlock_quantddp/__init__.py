"""DDP whose gradients are sent in 8 or 4 bits.

This module is all that ``list`` and ``explain`` read, so it imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.declarations import Exclude, Need, Option, Package, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

if TYPE_CHECKING:
    from interlock_quantddp.strategy import QuantizedDDP

__all__ = ["DECLARATION", "QuantizedDDP"]

DECLARATION = StrategyDeclaration(
    name="ddp_quantized",
    summary="as ddp, gradients sent in 8 or 4 bits with error feedback, for slow networks",
    implementation="interlock_quantddp.strategy:QuantizedDDP",
    api=1,
    provides=(
        "devices.many",
        "nodes.many",
        "steps.equal",  # all ranks decode the same messages; rounded, so their steps are not those of the global batch
        "grad_sync.skip",
        "clip.norm",
        "clip.value",
        "optimizer.many",
        "checkpoint.full",
        "checkpoint.other_world_size",
        "launch.subprocess",
        "launch.external",
    ),
    needs=(
        Need("collective.nccl | collective.gloo", "its ranks exchange gradients over a process group"),
        Need(
            "session.script | launched.external",
            "it starts its processes by running the script again, and a prompt or notebook has no script to run",
        ),
    ),
    excludes=(
        Exclude("loss_scaling", "a gradient that overflows once would stay in its error memory for ever"),
        Exclude("asked.optimizer.closure", "its error memory counts each evaluation as a step"),
    ),
    packages=(Package("torch", ">=2.6"),),
    wraps=("setup_device",),
    options=(
        Option("bits", 8, "bits that one number of a gradient takes: 8 or 4"),
        Option("block", 256, "numbers that share one scale; an even number"),
        *PROCESS_OPTIONS,
    ),
    ranks="device",
)


def __getattr__(name: str) -> object:
    """Import the implementation only for those who ask for it."""
    if name == "QuantizedDDP":
        from interlock_quantddp.strategy import QuantizedDDP

        return QuantizedDDP
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Local SGD: every rank trains alone, and every few steps the ranks average their weights.

This module is all that ``list`` and ``explain`` read, so it imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.declarations import Exclude, Need, Option, Package, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

if TYPE_CHECKING:
    from interlock_localsgd.strategy import LocalSGD

__all__ = ["DECLARATION", "LocalSGD"]

DECLARATION = StrategyDeclaration(
    name="local_sgd",
    summary="one process per device; each trains alone, and weights are averaged every few steps",
    implementation="interlock_localsgd.strategy:LocalSGD",
    api=1,
    aliases=("post_local_sgd",),
    # neither steps.equal nor steps.global: ranks step on gradients of their own, and that is what it is for
    provides=(
        "devices.many",
        "nodes.many",
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
        Need("collective.nccl | collective.gloo", "its ranks average weights over a process group"),
        Need(
            "session.script | launched.external",
            "it starts its processes by running the script again, and a prompt or notebook has no script to run",
        ),
    ),
    excludes=(Exclude("asked.optimizer.closure", "torch's PostLocalSGDOptimizer takes no closure"),),
    packages=(Package("torch", ">=2.6"),),
    wraps=("setup_device",),
    options=(
        Option("sync_every", 8, "steps between two averages of the weights"),
        Option("warmup_steps", 0, "first steps that average gradients over all ranks, as ddp does"),
        Option("group_size", 1, "neighbouring ranks that still average gradients in every step"),
        *PROCESS_OPTIONS,
    ),
    ranks="device",
)


def __getattr__(name: str) -> object:
    """Import the implementation only for those who ask for it: ``from interlock_localsgd import LocalSGD``."""
    if name == "LocalSGD":
        from interlock_localsgd.strategy import LocalSGD

        return LocalSGD
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Optimizer state sharded over the ranks by torch itself."""

from builtin_plugins.ddp.tokens import DDP_OPTIONS, DDP_PROVIDES, GROUP_NEED
from core.declarations import API, Exclude, Need, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="zero",
    summary="as ddp, each rank holding its part of the optimizer state (torch's ZeroRedundancyOptimizer)",
    implementation="builtin_plugins.zero.strategy:ZeroStrategy",
    api=API,
    aliases=("zero_redundancy",),
    provides=(
        *(token for token in DDP_PROVIDES if token != "optimizer.closure"),
        "sharded.optimizer",
        "launch.subprocess",
        "launch.external",
    ),
    needs=(
        GROUP_NEED,
        Need(
            "session.script | launched.external",
            "it starts its processes by running the script again, and a prompt or notebook has no script to run",
        ),
    ),
    excludes=(
        Exclude("asked.optimizer.closure", "each rank would evaluate the closure on its own part of the parameters"),
    ),
    wraps=("setup_device",),
    options=(*DDP_OPTIONS, *PROCESS_OPTIONS),
    ranks="device",
)

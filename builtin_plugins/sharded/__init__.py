"""Optimizer state and gradients sharded over the ranks by fairscale."""

from builtin_plugins.ddp.tokens import GROUP_NEED
from core.declarations import API, Exclude, Need, Option, Package, Replaces, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="ddp_sharded",
    summary="as ddp, each rank holding its part of optimizer state and gradients (fairscale OSS + ShardedDDP)",
    implementation="builtin_plugins.sharded.strategy:ShardedStrategy",
    api=API,
    aliases=("sharded",),
    provides=(
        "devices.many",
        "nodes.many",
        "steps.equal",
        "steps.global",
        "grad_sync.skip",
        "clip.norm",
        "clip.value",
        "sync_batchnorm",
        "optimizer.many",
        "manual_optimization",
        "checkpoint.full",
        "checkpoint.other_world_size",
        "sharded.optimizer",
        "sharded.gradients",
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
        Exclude("amp.apex", "apex scales each rank's gradients by itself, and here ranks hold different ones"),
        Exclude("asked.optimizer.closure", "each rank would evaluate the closure on its own part of the parameters"),
    ),
    packages=(Package("fairscale", ">=0.4.6", extra="sharded"),),
    wraps=("setup_device",),
    options=(
        Option("broadcast_fp16", False, "send updated parameters between ranks in float16"),
        *PROCESS_OPTIONS,
    ),
    replaces=(Replaces("fairscale", 'strategy="ddp_sharded"'),),
    ranks="device",
    preference=10,
)

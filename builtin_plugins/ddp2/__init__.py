"""One process per node: replicas on the node's devices inside it, DistributedDataParallel between nodes."""

from builtin_plugins.ddp.tokens import DDP_OPTIONS, GROUP_NEED
from core.declarations import API, Need, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="ddp2",
    summary="one process per node, replicas on its devices side by side; gradients averaged between nodes",
    implementation="builtin_plugins.ddp2.strategy:DDP2Strategy",
    api=API,
    provides=(
        "devices.many",
        "nodes.many",
        "steps.equal",
        "steps.global",
        "grad_sync.skip",
        "clip.norm",
        "clip.value",
        "optimizer.closure",
        "optimizer.many",
        "checkpoint.full",
        "checkpoint.other_world_size",
        "launch.external",
    ),
    needs=(
        Need("replicas", "one process runs a replica on each device of its node"),
        GROUP_NEED,
    ),
    wraps=("setup_device",),
    options=(*DDP_OPTIONS, *PROCESS_OPTIONS),
    ranks="node",
)

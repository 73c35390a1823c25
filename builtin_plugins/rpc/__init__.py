"""A world of named workers: some ranks run the loop, the others hold parts of the model and serve."""

from builtin_plugins.rpc.options import NAMES_OPTION, RPC_EXCLUDES, RPC_NEEDS
from core.declarations import API, Option, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="rpc",
    summary="named workers on torch.distributed.rpc: main ranks run the loop, the others hold parts of the model",
    implementation="builtin_plugins.rpc.strategy:RPCStrategy",
    api=API,
    provides=(
        "devices.many",
        "nodes.many",
        "steps.equal",
        "steps.global",
        "grad_sync.skip",
        "clip.norm",
        "clip.value",
        "optimizer.many",
        "checkpoint.full",
        "checkpoint.other_world_size",
        "launch.subprocess",
        "launch.external",
    ),
    needs=RPC_NEEDS,
    excludes=RPC_EXCLUDES,
    wraps=("setup_device",),
    options=(
        Option("main_ranks", 1, "ranks that run the loop; the others serve them"),
        NAMES_OPTION,
        *PROCESS_OPTIONS,
    ),
    ranks="device",
)

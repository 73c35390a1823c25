"""One process, several devices, a replica of the module on each."""

from core.declarations import API, Need, StrategyDeclaration

DECLARATION = StrategyDeclaration(
    name="dp",
    summary="one process drives several devices: each batch is cut, replicas run side by side, gradients are summed",
    implementation="builtin_plugins.dp.strategy:DataParallelStrategy",
    api=API,
    aliases=("data_parallel",),
    provides=(
        "devices.many",
        "steps.equal",
        "steps.global",
        "grad_sync.skip",
        "clip.norm",
        "clip.value",
        "optimizer.closure",
        "optimizer.many",
        "checkpoint.full",
        "checkpoint.other_world_size",
    ),
    needs=(Need("replicas", "one process runs a replica on each of its devices"),),
    ranks="run",
)

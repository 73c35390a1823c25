"""One process, one device."""

from core.declarations import API, StrategyDeclaration

DECLARATION = StrategyDeclaration(
    name="single_device",
    summary="one process on one device",
    implementation="builtin_plugins.single_device.strategy:SingleDeviceStrategy",
    api=API,
    aliases=("single",),
    provides=(
        "steps.equal",
        "steps.global",
        "grad_sync.skip",
        "clip.norm",
        "clip.value",
        "optimizer.closure",
        "optimizer.many",
        "manual_optimization",
        "checkpoint.full",
        "checkpoint.other_world_size",
    ),
    ranks="run",
    preference=100,
)

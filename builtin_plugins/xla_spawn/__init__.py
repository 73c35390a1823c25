"""One process per XLA device, started with torch_xla.launch."""

from core.declarations import API, Exclude, Need, Package, StrategyDeclaration

DECLARATION = StrategyDeclaration(
    name="xla_spawn",
    summary="one process per XLA device, started with torch_xla.launch; gradients averaged over the runtime",
    implementation="builtin_plugins.xla_spawn.strategy:XLASpawnStrategy",
    api=API,
    aliases=("tpu_spawn",),
    provides=(
        "devices.many",
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
        "launch.xla",
    ),
    needs=(
        Need("device.xla", "torch_xla.launch starts a process for each XLA device"),
        Need(
            "collective.xla | devices.one",
            "several processes average their gradients over the runtime, and this one lets no processes exchange "
            "tensors: take one device, or a strategy with one process for all",
        ),
        Need("session.script", "a started process imports the script, and a prompt or notebook has none to import"),
    ),
    excludes=(
        Exclude("launched.external", "the launcher has started the processes already; this strategy starts its own"),
        Exclude("asked.devices.indexed", "torch_xla.launch starts a process for each device of the runtime"),
    ),
    packages=(Package("torch_xla", ">=2.6", extra="xla"),),
    ranks="device",
    preference=20,
)

"""One process that splits each batch over all XLA devices."""

from core.declarations import API, Exclude, Need, Package, StrategyDeclaration

DECLARATION = StrategyDeclaration(
    name="xla_spmd",
    summary="one program over all devices: each batch split among them, the model on every one",
    implementation="builtin_plugins.xla_spmd.strategy:SPMDStrategy",
    api=API,
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
    ),
    needs=(Need("spmd", "each batch is one array, which the compiler splits over the devices"),),
    excludes=(
        Exclude("launched.external", "one process drives all devices; start the program once, by itself"),
        Exclude("asked.devices.indexed", "the compiler splits batches over all devices of the runtime"),
    ),
    packages=(Package("torch_xla", ">=2.6", extra="xla"),),
    wraps=("setup_device", "transfer_batch"),
    ranks="run",
    preference=40,
)

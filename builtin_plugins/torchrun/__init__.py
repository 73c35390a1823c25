"""torchrun, and every launcher that sets the same variables."""

from core.declarations import API, EnvironmentDeclaration

DECLARATION = EnvironmentDeclaration(
    name="torchrun",
    summary="torchrun, torch.distributed.launch, or a launcher that sets RANK, WORLD_SIZE and their like",
    implementation="builtin_plugins.torchrun.environment:detect",
    api=API,
    provides=("launched.external", "launched.torchrun"),
    preference=100,
)

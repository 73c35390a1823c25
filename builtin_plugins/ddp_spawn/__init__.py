"""As ddp, but its processes are started with torch.multiprocessing and results come home."""

from builtin_plugins.ddp.tokens import DDP_OPTIONS, DDP_PROVIDES, GROUP_NEED
from core.declarations import API, Exclude, Need, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="ddp_spawn",
    summary="as ddp, its processes started with torch.multiprocessing; weights and metrics brought home",
    implementation="builtin_plugins.ddp_spawn.strategy:DDPSpawnStrategy",
    api=API,
    provides=tuple(token for token in (*DDP_PROVIDES, "launch.spawn") if token != "nodes.many"),
    needs=(
        GROUP_NEED,
        Need("session.script", "a spawned process imports the script, and a prompt or notebook has none to import"),
    ),
    excludes=(
        Exclude("launched.external", "the launcher has started the processes already; use a strategy that joins them"),
    ),
    wraps=("setup_device",),
    options=(*DDP_OPTIONS, *PROCESS_OPTIONS),
    ranks="device",
    preference=20,
)

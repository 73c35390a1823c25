"""As ddp_sharded, but its processes are started with torch.multiprocessing and results come home."""

from builtin_plugins.ddp_spawn import DECLARATION as SPAWN
from builtin_plugins.sharded import DECLARATION as SHARDED
from core.declarations import API, StrategyDeclaration

DECLARATION = StrategyDeclaration(
    name="ddp_sharded_spawn",
    summary="as ddp_sharded, its processes started with torch.multiprocessing; weights and metrics brought home",
    implementation="builtin_plugins.sharded_spawn.strategy:ShardedSpawnStrategy",
    api=API,
    aliases=("sharded_spawn",),
    provides=(
        *(token for token in SHARDED.provides if token != "nodes.many" and not token.startswith("launch.")),
        "launch.spawn",
    ),
    needs=SPAWN.needs,
    excludes=(*SHARDED.excludes, *SPAWN.excludes),
    packages=SHARDED.packages,
    wraps=SHARDED.wraps,
    options=SHARDED.options,
    ranks="device",
)

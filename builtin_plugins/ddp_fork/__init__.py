"""As ddp, but its processes are forks of this one: they work from a prompt and a notebook."""

from builtin_plugins.ddp.tokens import DDP_OPTIONS, DDP_PROVIDES, GROUP_NEED
from builtin_plugins.ddp_spawn import DECLARATION as SPAWN
from core.declarations import API, Need, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="ddp_fork",
    summary="as ddp, its processes forked from this one, also in notebooks; weights and metrics brought home",
    implementation="builtin_plugins.ddp_fork.strategy:DDPForkStrategy",
    api=API,
    aliases=("ddp_notebook",),
    provides=(*(token for token in DDP_PROVIDES if token != "nodes.many"), "launch.fork"),
    needs=(GROUP_NEED, Need("fork", "its processes are forks of this one, and use a device that was opened in none")),
    excludes=SPAWN.excludes,
    wraps=("setup_device",),
    options=(*DDP_OPTIONS, *PROCESS_OPTIONS),
    ranks="device",
    preference=15,
)

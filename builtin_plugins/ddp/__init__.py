"""One process per device, gradients averaged by torch's DistributedDataParallel."""

from builtin_plugins.ddp.tokens import DDP_OPTIONS, DDP_PROVIDES, GROUP_NEED
from core.declarations import API, Need, Replaces, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="ddp",
    summary="one process per device, started by running the script again or by torchrun; gradients averaged",
    implementation="builtin_plugins.ddp.strategy:DDPStrategy",
    api=API,
    provides=(*DDP_PROVIDES, "launch.subprocess", "launch.external"),
    needs=(
        GROUP_NEED,
        Need(
            "session.script | launched.external",
            "it starts its processes by running the script again, and a prompt or notebook has no script to run",
        ),
    ),
    wraps=("setup_device",),
    options=(*DDP_OPTIONS, *PROCESS_OPTIONS),
    replaces=(
        Replaces("ddp_cpu", 'accelerator="cpu", strategy="ddp"'),
        Replaces("ddp_find_unused_parameters_true", "strategy=DDPStrategy(find_unused_parameters=True)"),
        Replaces("ddp_find_unused_parameters_false", 'strategy="ddp"'),
        Replaces("horovod", 'strategy="ddp", which averages gradients without a package of its own'),
    ),
    ranks="device",
    preference=50,
)

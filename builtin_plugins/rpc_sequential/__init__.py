"""A sequential cut into stages over RPC workers, micro-batches in flight at the same time."""

from builtin_plugins.pipeline.options import PIPELINE_OPTIONS, PIPELINE_PROVIDES, SEQUENTIAL_NEED
from builtin_plugins.rpc.options import NAMES_OPTION, RPC_EXCLUDES, RPC_NEEDS
from core.declarations import API, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="rpc_sequential",
    summary="a sequential cut into stages over RPC workers; the main rank of each pipeline runs the loop",
    implementation="builtin_plugins.rpc_sequential.strategy:RPCSequentialStrategy",
    api=API,
    provides=PIPELINE_PROVIDES,
    needs=(*RPC_NEEDS, SEQUENTIAL_NEED),
    excludes=RPC_EXCLUDES,
    wraps=("setup_device",),
    options=(*PIPELINE_OPTIONS, NAMES_OPTION, *PROCESS_OPTIONS),
    ranks="device",
)

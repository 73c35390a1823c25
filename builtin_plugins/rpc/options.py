"""What the strategies on torch.distributed.rpc state in common (torch-free)."""

from builtin_plugins.pipeline.options import SCRIPT_NEED, no_scaling
from core.declarations import Need, Option

RPC_NEEDS = (
    Need("rpc", "its ranks call each other with torch.distributed.rpc"),
    Need("collective.nccl | collective.gloo", "the ranks that run the loop agree over a process group"),
    SCRIPT_NEED,
)
RPC_EXCLUDES = no_scaling("distributed autograd starts backward with 1 on every rank, not with a scale")
NAMES_OPTION = Option("names", None, "a name for each rank; worker0, worker1, ... if not given")

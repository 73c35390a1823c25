"""Parameters, gradients and optimizer state sharded over the ranks by torch's fully_shard (FSDP2)."""

from builtin_plugins.ddp.tokens import GROUP_NEED
from core.declarations import API, Exclude, Need, Option, Replaces, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="fsdp",
    summary="each rank holds its part of parameters, gradients and optimizer state (torch's fully_shard)",
    implementation="builtin_plugins.fsdp.strategy:FSDPStrategy",
    api=API,
    aliases=("fsdp2",),
    provides=(
        "devices.many",
        "nodes.many",
        "steps.equal",
        "steps.global",
        "grad_sync.skip",
        "clip.norm",
        "clip.value",
        "sync_batchnorm",
        "optimizer.many",
        "checkpoint.full",
        "checkpoint.sharded",
        "checkpoint.other_world_size",
        "sharded.optimizer",
        "sharded.gradients",
        "sharded.parameters",
        "launch.subprocess",
        "launch.external",
    ),
    needs=(
        GROUP_NEED,
        Need(
            "session.script | launched.external",
            "it starts its processes by running the script again, and a prompt or notebook has no script to run",
        ),
    ),
    excludes=(
        Exclude("amp.apex", "apex reads and scales whole gradients, and here each rank holds parts of them"),
        Exclude("asked.optimizer.closure", "the closure's optimizers, such as LBFGS, work on whole parameters"),
    ),
    wraps=("setup_device",),
    options=(
        Option("wrap", (), "class names of the parts that are gathered one at a time, such as 'TransformerBlock'"),
        Option("min_params", 0, "also gather one at a time each part with so many parameters; 0 for none"),
        Option(
            "reshard_after_forward",
            True,
            "free the parameters of such a part after forward, and gather them again for backward",
        ),
        Option("param_dtype", None, "gather and compute in this dtype, such as 'bfloat16'; shards keep theirs"),
        Option("reduce_dtype", None, "exchange gradients in this dtype, such as 'float32'"),
        Option("checkpoint", "full", "'full' is one file, 'sharded' a folder to which each rank writes its part"),
        *PROCESS_OPTIONS,
    ),
    replaces=(
        Replaces("deepspeed", 'strategy="fsdp", or "ddp_sharded" or "zero" for sharded optimizer state'),
        Replaces("deepspeed_stage_1", 'strategy="zero"'),
        Replaces("deepspeed_stage_2", 'strategy="ddp_sharded"'),
        Replaces("deepspeed_stage_2_offload", 'strategy="ddp_sharded"; nothing is offloaded to host memory'),
        Replaces("deepspeed_stage_3", 'strategy="fsdp"'),
        Replaces("deepspeed_stage_3_offload", 'strategy="fsdp"; nothing is offloaded to host memory'),
        Replaces("fsdp2", 'strategy="fsdp"'),
    ),
    ranks="device",
)

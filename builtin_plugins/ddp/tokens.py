"""What the two ways to start DistributedDataParallel state in common."""

from core.declarations import Need, Option

DDP_PROVIDES = (
    "devices.many",
    "nodes.many",
    "grad_sync.skip",
    "clip.norm",
    "clip.value",
    "steps.equal",
    "steps.global",
    "sync_batchnorm",
    "optimizer.closure",
    "optimizer.many",
    "manual_optimization",
    "checkpoint.full",
    "checkpoint.other_world_size",
)
GROUP_NEED = Need("collective.nccl | collective.gloo", "its ranks average gradients over a process group")
DDP_OPTIONS = (
    Option("find_unused_parameters", False, "look in each step for parameters that the loss does not use"),
    Option("static_graph", False, "promise that every step uses the same parameters"),
    Option("gradient_as_bucket_view", False, "let gradients share memory with the exchange buffers"),
)

"""What the ways to run a pipeline state in common (torch-free)."""

from core.declarations import Exclude, Need, Option

PIPELINE_PROVIDES = (
    "devices.many",
    "nodes.many",
    "steps.equal",
    "steps.global",
    "grad_sync.skip",
    "clip.norm",
    "clip.value",
    "optimizer.many",
    "checkpoint.full",
    "checkpoint.other_world_size",
    "launch.subprocess",
    "launch.external",
)
SEQUENTIAL_NEED = Need(
    "module.sequential", "it cuts a sequence of layers into stages, and needs to know which sequence that is"
)
SCRIPT_NEED = Need(
    "session.script | launched.external",
    "it starts its processes by running the script again, and a prompt or notebook has no script to run",
)
PIPELINE_OPTIONS = (
    Option("stages", None, "stages of one pipeline; as many as devices, or as balance has entries, if not given"),
    Option("balance", "parameters", "layers of each stage, or 'parameters' or 'time': what makes the stages alike"),
    Option("micro_batches", 8, "parts of a batch that are in flight at the same time"),
)


def no_scaling(reason: str) -> tuple[Exclude, ...]:
    """Return the exclusion of a scaled loss."""
    return (Exclude("loss_scaling", reason),)

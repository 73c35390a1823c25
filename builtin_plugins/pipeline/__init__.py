"""A sequential cut into stages, one per process, on torch.distributed.pipelining."""

from builtin_plugins.pipeline.options import (
    PIPELINE_OPTIONS,
    PIPELINE_PROVIDES,
    SCRIPT_NEED,
    SEQUENTIAL_NEED,
    no_scaling,
)
from core.declarations import API, Need, Option, StrategyDeclaration
from core.parallel.options import PROCESS_OPTIONS

DECLARATION = StrategyDeclaration(
    name="pipeline",
    summary="a sequential cut into stages over the devices, micro-batches in flight (torch pipelining, GPipe or 1F1B)",
    implementation="builtin_plugins.pipeline.strategy:PipelineStrategy",
    api=API,
    provides=PIPELINE_PROVIDES,
    needs=(
        Need("collective.nccl | collective.gloo", "its stages send activations and gradients to each other"),
        SCRIPT_NEED,
        SEQUENTIAL_NEED,
    ),
    excludes=no_scaling("the schedule runs backward before the scale of the loss is known"),
    wraps=("setup_device",),
    options=(
        *PIPELINE_OPTIONS,
        Option("schedule", "1f1b", "order of the micro-batches: 'gpipe', or '1f1b', which holds fewer activations"),
        *PROCESS_OPTIONS,
    ),
    ranks="device",
)

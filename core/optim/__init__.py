"""Optimizers and schedulers: what the user's module configured, and how they are stepped."""

from core.optim.configure import OptimizerSetup, SchedulerConfig, configure_optimizers, mark_as_watched
from core.optim.gradients import clear_gradients, needs_closure, state_bytes
from core.optim.maker import OptimizerMaker

__all__ = [
    "OptimizerMaker",
    "OptimizerSetup",
    "SchedulerConfig",
    "clear_gradients",
    "configure_optimizers",
    "mark_as_watched",
    "needs_closure",
    "state_bytes",
]

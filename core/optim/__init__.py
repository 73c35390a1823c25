"""Optimizers and schedulers: what the user's module configured, and how they are stepped."""

from core.optim.configure import OptimizerSetup, SchedulerConfig, configure_optimizers
from core.optim.gradients import clear_gradients, needs_closure, state_bytes

__all__ = [
    "OptimizerSetup",
    "SchedulerConfig",
    "clear_gradients",
    "configure_optimizers",
    "needs_closure",
    "state_bytes",
]

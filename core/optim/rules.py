"""What a module's optimizers need from the plan."""

from __future__ import annotations

from torch import nn

from core.declarations import Exclude, Need
from core.optim.configure import OptimizerSetup
from core.optim.gradients import needs_closure
from core.rules import Party


def module_party(setup: OptimizerSetup, module: nn.Module) -> Party:
    """Return the party that speaks for ``module`` with its optimizers."""
    needs: list[Need] = []
    if not getattr(module, "automatic_optimization", True):
        needs.append(Need("manual_optimization", "it has automatic_optimization = False"))
    excludes: list[Exclude] = []
    if len(setup.optimizers) > 1:
        needs.append(Need("optimizer.many", f"it configures {len(setup.optimizers)} optimizers"))
    closures = [type(optimizer).__name__ for optimizer in setup.optimizers if needs_closure(optimizer)]
    if closures:
        needs.append(Need("optimizer.closure", f"{closures[0]} evaluates the loss several times in each step"))
        excludes.append(
            Exclude("asked.grad_sync.skip", f"{closures[0]} evaluates one batch again and again; it has no window")
        )
    return Party(f"module {type(module).__name__!r}", needs=tuple(needs), excludes=tuple(excludes), asks=True)

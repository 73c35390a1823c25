"""What a module and its optimizers need from the plan, and what they bring to it."""

from __future__ import annotations

from torch import nn

from core.declarations import Exclude, Need
from core.errors import InterlockError
from core.optim.configure import OptimizerSetup
from core.optim.gradients import needs_closure
from core.registry import get_registry
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
    label = f"module {type(module).__name__!r}"
    return Party(label, structure_tokens(module), tuple(needs), tuple(excludes), asks=True)


def refuse_sharded(setup: OptimizerSetup, module: nn.Module) -> None:
    """Refuse an optimizer that divides its state over the ranks by itself.

    No checkpoint of the run would hold all of its state, and a strategy that divides it would do so once more.

    Raises:
        InterlockError: naming the optimizer and the strategies that divide the state of any.
    """
    for optimizer in setup.optimizers:
        if callable(getattr(optimizer, "consolidate_state_dict", None)):
            inner = type(getattr(optimizer, "optim", optimizer)).__name__
            dividing = [d.name for d in get_registry().declarations("strategy") if "sharded.optimizer" in d.provides]
            raise InterlockError(
                f"{type(module).__name__} configures {type(optimizer).__name__}, which divides its state over the ranks"
                f" by itself: a checkpoint would lack the others' parts\n  hint: return {inner} itself, with a "
                f"strategy that divides the state of any optimizer: {', '.join(sorted(dividing))}"
            )


def structure_tokens(module: nn.Module) -> frozenset[str]:
    """Return the tokens that ``module`` brings by how it is built."""
    parts = (module, getattr(module, "sequential_module", None))
    sequential = any(isinstance(part, nn.Sequential) for part in parts)
    return frozenset({"module.sequential"} if sequential else ())

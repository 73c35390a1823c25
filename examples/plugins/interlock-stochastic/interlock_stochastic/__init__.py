"""bfloat16 weights with stochastic rounding.

This module is all that ``list`` and ``explain`` read, so it imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.declarations import Exclude, Need, Option, Package, PrecisionDeclaration

if TYPE_CHECKING:
    from interlock_stochastic.precision import StochasticRounding

__all__ = ["DECLARATION", "StochasticRounding"]

DECLARATION = PrecisionDeclaration(
    name="bf16-stochastic",
    summary="weights and arithmetic in bfloat16, each step computed in float32 and rounded stochastically",
    implementation="interlock_stochastic.precision:StochasticRounding",
    api=1,
    aliases=("bf16-sr",),
    provides=("weights.half",),
    needs=(Need("dtype.bfloat16", "the weights are kept in bfloat16"),),
    excludes=(
        Exclude("sharded.optimizer", "it gives the optimizers float32 stand-ins, and a sharded one keeps its own"),
        Exclude("asked.optimizer.closure", "a closure would read the weights while they lie in the stand-ins"),
        Exclude("asked.manual_optimization", "gradients reach the stand-ins where the loop ends a window"),
    ),
    packages=(Package("torch", ">=2.6"),),
    wraps=("wrap_model", "transfer_batch", "optimizer_step"),
    options=(Option("seed", 0, "where the random bits start; every rank draws the same"),),
)


def __getattr__(name: str) -> object:
    """Import the implementation only for those who ask for it."""
    if name == "StochasticRounding":
        from interlock_stochastic.precision import StochasticRounding

        return StochasticRounding
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Whether a checkpoint that one layout wrote can be read by another, found out before anything is restored."""

from __future__ import annotations

from typing import Any

from core.errors import CheckpointError
from core.plan import Plan

FULL, ANY_WORLD = "checkpoint.full", "checkpoint.other_world_size"


def refuse_other_layout(checkpoint: dict[str, Any], plan: Plan, path: str) -> None:
    """Refuse a checkpoint that the strategies do not say they can exchange; files of other programs pass.

    Raises:
        CheckpointError: naming both layouts.
    """
    written = checkpoint.get("interlock", {}).get("plan")
    if not written:
        return
    then = f"{written['strategy']['name']} on {written['world_size']} processes"
    now = f"{plan.strategy.name} on {plan.world_size} processes"
    could, can = set(written["strategy"].get("checkpoint", [])), set(plan.strategy.declaration.provides)
    wanted = []
    if written["strategy"]["name"] != plan.strategy.name:
        wanted.append((FULL, "writes or reads no full checkpoint"))
    if written["world_size"] != plan.world_size:
        wanted.append((ANY_WORLD, "reads its checkpoints on the same number of processes only"))
    for token, what in wanted:
        lacking = [
            name
            for name, tokens in ((written["strategy"]["name"], could), (plan.strategy.name, can))
            if token not in tokens
        ]
        if lacking:
            raise CheckpointError(
                f"checkpoint {path!r} was written by {then} and cannot be read by {now}: {lacking[0]} {what}"
            )

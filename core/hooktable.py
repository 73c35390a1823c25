"""Which kind of plugin owns each hook, and which kinds may wrap it (torch-free and pluggy-free).

:mod:`core.hookspecs` documents the hooks; this table is what declarations and plans are checked against.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from core.declarations import Kind


class HookRule(NamedTuple):
    """The one owner of a hook and the kinds that may wrap it, outermost first."""

    owner: Kind
    wrappers: tuple[Kind, ...] = ()


HOOKS = MappingProxyType(
    {
        "launch": HookRule("strategy"),
        "setup_device": HookRule("accelerator", ("strategy",)),
        "wrap_model": HookRule("strategy", ("accelerator", "precision")),
        "shard_data": HookRule("strategy"),
        "transfer_batch": HookRule("accelerator", ("precision", "strategy")),
        "forward_context": HookRule("precision"),
        "skip_gradient_sync": HookRule("strategy"),
        "backward": HookRule("strategy", ("precision",)),
        "unscale_gradients": HookRule("precision"),
        "clip_gradients": HookRule("strategy", ("precision",)),
        "optimizer_step": HookRule("strategy", ("accelerator", "precision")),
        "reduce": HookRule("strategy"),
        "broadcast": HookRule("strategy"),
        "barrier": HookRule("strategy"),
        "gather_state": HookRule("strategy"),
        "restore_state": HookRule("strategy"),
        "conclude": HookRule("strategy"),
        "teardown": HookRule("strategy", ("accelerator",)),
    }
)


def may_wrap(kind: Kind) -> list[str]:
    """Return the hooks that a plugin of ``kind`` may wrap."""
    return [hook for hook, rule in HOOKS.items() if kind in rule.wrappers]

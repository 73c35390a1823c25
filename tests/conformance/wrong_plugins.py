"""Strategies that each do one thing wrong, written as their authors would."""

from __future__ import annotations

from pathlib import Path

from support.fake_dists import write_plugin

from core.declarations import Need

GROUP_NEED = Need("collective.nccl | collective.gloo", "its ranks exchange gradients")
SCRIPT_NEED = Need("session.script", "it runs the script again")

WRONG_MEAN = """
from builtin_plugins.ddp.strategy import DDPStrategy
from core.plugins import hookimpl

class Implementation(DDPStrategy):
    @hookimpl
    def reduce(self, tensor, op):
        if op != "mean":
            return super().reduce(tensor, op)
        return (super().reduce(tensor, "sum") / self.ranks.world_size).to(tensor.dtype)  # 3.5 becomes 3
"""
FORGOTTEN_SYNC = """
from contextlib import nullcontext
from builtin_plugins.ddp.strategy import DDPStrategy
from core.plugins import hookimpl

class Implementation(DDPStrategy):
    @hookimpl
    def skip_gradient_sync(self, module):
        module.require_backward_grad_sync = False  # and nobody sets it back
        return nullcontext()
"""
NO_CLIPPING = """
from core.plugins import Strategy, hookimpl

class Implementation(Strategy):
    @hookimpl
    def clip_gradients(self, module, optimizer, value, algorithm):
        if algorithm == "value":
            super().clip_gradients(module, optimizer, value, algorithm)
"""


def install(site: Path, name: str, implementation: str, **fields: object) -> None:
    """Install a strategy: its declaration in one module, its implementation in another."""
    module = f"{name}_implementation"
    (site / f"{module}.py").write_text(implementation)
    write_plugin(site, f"acme-{name}", "strategy", name, implementation=f"{module}:Implementation", **fields)


def install_parallel(site: Path, name: str, implementation: str) -> None:
    """Install a strategy of several processes that claims little."""
    install(
        site,
        name,
        implementation,
        provides=("devices.many", "steps.equal", "steps.global", "launch.subprocess", "grad_sync.skip"),
        needs=(GROUP_NEED, SCRIPT_NEED),
        wraps=("setup_device",),
        ranks="device",
    )

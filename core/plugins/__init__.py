"""Base classes for plugin implementations: defaults for one process, to build on."""

from core.hookspecs import Shard, WrappedModel, hookimpl, hookspec
from core.plugins.accelerator import Accelerator
from core.plugins.autocast import AutocastPrecision
from core.plugins.base import Plugin
from core.plugins.precision import Precision
from core.plugins.strategy import Strategy
from core.plugins.weights import WeightsPrecision

__all__ = [
    "Accelerator",
    "AutocastPrecision",
    "Plugin",
    "Precision",
    "Shard",
    "Strategy",
    "WeightsPrecision",
    "WrappedModel",
    "hookimpl",
    "hookspec",
]

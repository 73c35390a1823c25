"""Read what ``configure_optimizers`` returned, in any of its shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from core.errors import InvalidArgument, WrongType

SHAPES = """accepted shapes:
    an optimizer
    a list or tuple of optimizers
    two lists: optimizers, schedulers
    {"optimizer": ..., "lr_scheduler": a scheduler or its dict}
    a tuple or list of such dicts
    None, to train without an optimizer
  a scheduler's dict has the keys scheduler, interval ("epoch" or "step"), frequency, monitor, strict, name"""


@dataclass
class SchedulerConfig:
    """One learning-rate scheduler and when it steps."""

    scheduler: Any
    interval: Literal["epoch", "step"] = "epoch"
    frequency: int = 1
    monitor: str | None = None
    strict: bool = True
    name: str | None = None
    reduce_on_plateau: bool = False
    """True for a scheduler of another class whose ``step`` takes the monitored value too."""

    def __post_init__(self) -> None:
        if self.interval not in ("epoch", "step"):
            raise InvalidArgument(f"scheduler interval {self.interval!r} must be 'epoch' or 'step'")
        if isinstance(self.frequency, bool) or not isinstance(self.frequency, int) or self.frequency < 1:
            raise InvalidArgument(f"scheduler frequency {self.frequency!r} must be a whole number of at least 1")

    @property
    def reduces_on_plateau(self) -> bool:
        """Whether ``step`` takes the monitored value."""
        return self.reduce_on_plateau or isinstance(self.scheduler, ReduceLROnPlateau)


@dataclass
class OptimizerSetup:
    """The optimizers and schedulers of one run."""

    optimizers: list[Optimizer] = field(default_factory=list)
    schedulers: list[SchedulerConfig] = field(default_factory=list)

    def rebind(self, replacements: list[Optimizer]) -> None:
        """Take the strategy's optimizers in place of the user's, and point the schedulers at them."""
        for old, new in zip(self.optimizers, replacements, strict=True):
            if old is not new:
                for config in self.schedulers:
                    _rebind(config.scheduler, old, new)
        self.optimizers = replacements


def _rebind(scheduler: Any, old: Optimizer, new: Optimizer) -> None:
    for name, value in list(vars(scheduler).items()):
        if value is old:
            setattr(scheduler, name, new)
            mark_as_watched(new)
        for inner in value if isinstance(value, list | tuple) else [value]:
            if isinstance(inner, LRScheduler):
                _rebind(inner, old, new)


def mark_as_watched(optimizer: Optimizer) -> None:
    """Let torch believe that the optimizer has stepped before its scheduler, as the loop sees to.

    torch warns otherwise; it looks for marks that a scheduler leaves on the optimizer it was made with.
    """
    step = optimizer.step
    if not hasattr(step, "_wrapped_by_lr_sched"):

        def watched(*args: Any, **kwargs: Any) -> Any:
            return step(*args, **kwargs)

        watched._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        optimizer.step = watched  # type: ignore[method-assign]  # on this one only, not on its class
    optimizer._opt_called = True  # type: ignore[attr-defined]


def configure_optimizers(module: nn.Module) -> OptimizerSetup:
    """Call the module's ``configure_optimizers`` and read its result.

    Raises:
        WrongType: when the result has none of the accepted shapes.
    """
    result = module.configure_optimizers()  # type: ignore[operator]
    setup = OptimizerSetup()
    _read(result, setup)
    if getattr(module, "automatic_optimization", True):  # else the module steps its schedulers
        for config in setup.schedulers:
            _refuse_blind(config, setup.optimizers)
    return setup


def _refuse_blind(config: SchedulerConfig, optimizers: list[Optimizer]) -> None:
    """Refuse a scheduler that would do nothing: one without a value to look at, or of no optimizer of the run."""
    if config.reduces_on_plateau and config.monitor is None:
        raise InvalidArgument(
            f"{type(config.scheduler).__name__} has nothing to look at\n"
            '  hint: return {"scheduler": scheduler, "monitor": "val_loss"} under "lr_scheduler"'
        )
    own = getattr(config.scheduler, "optimizer", None)
    if isinstance(own, Optimizer) and all(own is not optimizer for optimizer in optimizers):
        raise InvalidArgument(
            f"{type(config.scheduler).__name__} belongs to a {type(own).__name__} that configure_optimizers does not "
            "return\n  hint: make the scheduler with the optimizer that is returned"
        )


def _read(result: Any, setup: OptimizerSetup) -> None:
    if result is None:
        return
    if isinstance(result, Optimizer):
        setup.optimizers.append(result)
    elif isinstance(result, Mapping):
        _read_mapping(result, setup)
    elif isinstance(result, list | tuple) and all(isinstance(item, Optimizer) for item in result):
        setup.optimizers.extend(result)
    elif isinstance(result, list | tuple) and all(isinstance(item, Mapping) for item in result):
        for item in result:
            _read_mapping(item, setup)
    elif isinstance(result, list | tuple) and len(result) == 2 and isinstance(result[0], list | tuple):
        _read(list(result[0]), setup)
        schedulers = result[1] if isinstance(result[1], list | tuple) else [result[1]]
        setup.schedulers.extend(_scheduler(item) for item in schedulers)
    else:
        what = f"{type(result).__name__} {result!r:.60}"
        if isinstance(result, list | tuple):
            what = f"a {type(result).__name__} of {', '.join(type(item).__name__ for item in result) or 'nothing'}"
        raise WrongType(f"configure_optimizers returned {what}\n  {SHAPES}")


def _read_mapping(item: Mapping[str, Any], setup: OptimizerSetup) -> None:
    optimizer = item.get("optimizer")
    unknown = set(item) - {"optimizer", "lr_scheduler", "monitor"}
    if not isinstance(optimizer, Optimizer) or unknown:
        raise WrongType(f"configure_optimizers returned a dict with keys {sorted(item)}\n  {SHAPES}")
    setup.optimizers.append(optimizer)
    if item.get("lr_scheduler") is not None:
        setup.schedulers.append(_scheduler(item["lr_scheduler"], item.get("monitor")))


def _scheduler(item: Any, monitor: str | None = None) -> SchedulerConfig:
    settings = dict(item) if isinstance(item, Mapping) else {"scheduler": item}
    settings.setdefault("monitor", monitor)
    known = set(SchedulerConfig.__dataclass_fields__)
    if set(settings) - known:
        raise WrongType(f"a scheduler's dict has unknown keys {sorted(set(settings) - known)}\n  {SHAPES}")
    if "scheduler" not in settings:
        raise WrongType(f"a scheduler's dict has the keys {sorted(item)}, but no scheduler\n  {SHAPES}")
    config = SchedulerConfig(**settings)
    if isinstance(config.scheduler, type) or not callable(getattr(config.scheduler, "step", None)):
        raise WrongType(f"{config.scheduler!r} is not a learning-rate scheduler\n  {SHAPES}")
    return config

"""One run in one process: everything that its loops share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from core.callbacks.events import Events
from core.checkpoint.content import gather_from_ranks
from core.hookspecs import WrappedModel
from core.metrics import Results
from core.optim import OptimizerSetup
from core.userhooks import overridden

if TYPE_CHECKING:
    from core.checkpoint.background import BackgroundWriter
    from core.data.source import DataSource
    from core.loops.evaluation import EvaluationLoop
    from core.loops.manual import ManualOptimization
    from core.loops.training import TrainingLoop
    from core.plan import Plan
    from core.plugins import Plugin
    from core.plugins.binding import Hooks
    from core.session import Ranks
    from core.trainer import Trainer


TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


@dataclass
class Run:
    """What one process of a run has: who it is, its plugins, and the model as the strategy wrapped it."""

    trainer: Trainer
    module: nn.Module
    plan: Plan
    plugins: dict[str, Plugin]
    hooks: Hooks
    ranks: Ranks
    device: torch.device
    router: StepRouter
    data: DataSource
    events: Events = field(init=False)
    wrapped: WrappedModel | None = None
    setup: OptimizerSetup = field(default_factory=OptimizerSetup)
    loop: TrainingLoop | None = None
    evaluation: EvaluationLoop | None = None
    manual: ManualOptimization | None = None
    writer: BackgroundWriter | None = None

    def __post_init__(self) -> None:
        if self.trainer.async_checkpointing:
            from core.checkpoint.background import BackgroundWriter

            self.writer = BackgroundWriter()
        self.trainer.profiler.attach(self.hooks)
        self.events = Events(self.trainer, self.module, self.trainer.callbacks, self.data.datamodule)

    def results(self, *, on_step: bool, on_epoch: bool, in_step: bool = True) -> Results:
        """Return a fresh collection of logged values."""
        return Results(on_step, on_epoch, self.hooks, self.device, in_step, partial(gather_from_ranks, self))

    def transfer(self, dataloader_idx: int = 0) -> Callable[[Any, torch.device], Any] | None:
        """Return what brings a batch to the device, or None where batches are fine as they come.

        The transfer hooks of the data module, or of the module, take part where their author wrote them.
        """
        hook = self.hooks.transfer_batch if self.hooks.changes("transfer_batch") else None
        before, own, after = (self._own_transfer(name) for name in TRANSFER_HOOKS)
        if before is None and own is None and after is None:
            return hook

        def move(batch: Any, device: torch.device) -> Any:
            if before is not None:
                batch = before(batch, dataloader_idx)
            if own is not None:
                batch = own(batch, device, dataloader_idx)
            if hook is not None:
                batch = hook(batch, device)
            return batch if after is None else after(batch, dataloader_idx)

        return move

    def _own_transfer(self, name: str) -> Callable[..., Any] | None:
        return overridden(self.data.datamodule, name) or overridden(self.module, name)

    def close(self) -> None:
        """Let go of the wrapped module, the optimizers and the loops, then of what the plugins hold.

        Nothing that outlives the run, such as the Trainer, leads to them any more, so that their memory goes back
        even if the run itself is still held somewhere.
        """
        self.trainer.keep_last_values()
        if self.evaluation is not None:
            self.evaluation.when_known = None  # it leads to the loop, which leads to it
        self.wrapped = self.loop = self.evaluation = self.manual = self.writer = None
        self.setup = OptimizerSetup()
        self.hooks.teardown()

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.ranks.global_rank == 0


class StepRouter(nn.Module):
    """Calling it runs a step of the module, so that a strategy's wrapper sees the step as its forward."""

    _is_replica = False
    """torch sets it on the copies that replicas run: a copy runs the step of the module that it holds."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._step: Callable[..., Any] | None = None

    def forward(self, *arguments: Any) -> Any:
        """Run the step of the current stage."""
        assert self._step is not None, "called inside running() only"
        step = bound_to(self.module, self._step) if self._is_replica else self._step
        return step(*arguments)

    @contextmanager
    def running(self, step: Callable[..., Any]) -> Iterator[None]:
        """Let calls run ``step`` inside, and what they ran before afterwards."""
        before, self._step = self._step, step
        try:
            yield
        finally:
            self._step = before


def without_wrapper(wrapped: nn.Module) -> bool:
    """Tell whether the strategy returned the module as it got it, so that its step can be called directly."""
    return type(wrapped) is StepRouter and not wrapped._forward_hooks and not wrapped._forward_pre_hooks


def takes(step: Callable[..., Any], count: int) -> bool:
    """Tell whether ``step`` can be called with so many arguments by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(step).parameters.values()
    wanted = sum(parameter.kind in kinds for parameter in parameters)
    return wanted >= count or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)


def takes_index(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``step`` as a function of (batch, batch_idx), whether or not it wants the index."""
    return step if takes(step, 2) else WithoutIndex(step)


class WithoutIndex:
    """A step that takes the batch alone, called with more."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step

    def __call__(self, batch: Any, *_: Any) -> Any:
        return self.step(batch)


def bound_to(module: nn.Module, step: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``step``, a method of a module, as the same method of ``module``, a copy of it."""
    if isinstance(step, WithoutIndex):
        return WithoutIndex(bound_to(module, step.step))
    belongs = isinstance(step, MethodType) and type(step.__self__) is type(module)
    return MethodType(step.__func__, module) if belongs else step  # type: ignore[attr-defined]

"""Stages on torch.distributed.pipelining as a strategy."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from builtin_plugins.pipeline.averaging import (
    average_gradients,
    clip_by_value,
    clip_factor,
    gradients_of,
    same_everywhere,
    square_sum,
)
from builtin_plugins.pipeline.layers import (
    cut,
    find_sequential,
    layer_tensors,
    move_rest,
    own_parameters,
    parameters_outside,
)
from builtin_plugins.pipeline.pieces import Pieces
from builtin_plugins.pipeline.schedule import SCHEDULES, Place
from builtin_plugins.pipeline.settings import Cutting
from builtin_plugins.pipeline.step import EvaluationStep, Pipeline, TrainingStep
from core.arguments import choice
from core.errors import InvalidArgument
from core.parallel.process_per_device import ProcessPerDeviceStrategy
from core.plugins import Shard, WrappedModel, hookimpl
from core.session import Ranks

T = TypeVar("T")


class PipelineStrategy(ProcessPerDeviceStrategy):
    """Every rank holds one stage of the module's sequential; micro-batches flow through the stages.

    Args:
        stages: of one pipeline; ``devices`` may be a multiple, which makes pipelines side by side.
        balance: layers of each stage, or ``"parameters"`` or ``"time"`` to have it inferred.
        micro_batches: parts of a batch in flight at the same time.
        schedule: ``"1f1b"`` or ``"gpipe"``.
        start_timeout, timeout: seconds, see :class:`ProcessPerDeviceStrategy`.

    Raises:
        InvalidArgument: for a balance or a schedule that cannot be.
    """

    def __init__(
        self,
        stages: int | None = None,
        balance: str | Sequence[int] = "parameters",
        micro_batches: int = 8,
        schedule: str = "1f1b",
        start_timeout: float = 120.0,
        timeout: float = 600.0,
    ) -> None:
        super().__init__(start_timeout, timeout)
        self.cutting = Cutting(stages, balance, micro_batches)
        self.stages, self.balance, self.micro_batches = stages, self.cutting.balance, micro_batches
        self.schedule = choice("schedule", schedule, tuple(SCHEDULES))
        self._sync = True

    @hookimpl
    def launch(self, run: Callable[[Ranks], T]) -> T:
        module: nn.Module = run.module  # type: ignore[attr-defined]  # see the hook
        self.cutting.check(module, self.plan.world_size)
        outside = list(parameters_outside(module, find_sequential(module)[0]))
        if outside:
            raise InvalidArgument(
                f"{', '.join(outside)} {'are' if len(outside) > 1 else 'is'} trained, but in no layer of the "
                "sequential, so no stage would have it\n"
                "  hint: move such parameters into layers of the sequential, or do not train them"
            )
        return super().launch(run)

    @hookimpl(wrapper=True)
    def setup_device(self, ranks: Ranks) -> Generator[None, torch.device, torch.device]:
        device = yield from super().setup_device(ranks)
        stages = self.cutting.stages(ranks.world_size)
        pipeline, stage = divmod(ranks.global_rank, stages)
        self._pipelines = ranks.world_size // stages
        everyone = range(ranks.world_size)
        group = self._new_groups([everyone[p * stages : (p + 1) * stages] for p in range(self._pipelines)])[pipeline]
        self._alike = self._new_groups([everyone[s::stages] for s in range(stages)])[stage]
        self._pipeline, self.place = pipeline, Place(stage, stages, group, device)
        return device

    def _new_groups(self, members: Sequence[Sequence[int]]) -> list[dist.ProcessGroup]:
        """Make a process group of each set of ranks; every rank makes all, in the same order."""
        timeout = timedelta(seconds=self.timeout)
        return [dist.new_group(list(ranks), timeout=timeout) for ranks in members]

    @hookimpl
    def wrap_model(self, module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
        user = next(module.children())
        sequential, _ = find_sequential(user)
        place, is_zero = self.place, self.ranks.global_rank == 0
        balance = self.broadcast(self.cutting.find_balance(user, place.stages, self.device) if is_zero else None)
        same_everywhere(layer_tensors(user).values(), None, self.device)
        self.pieces = Pieces(user, cut(sequential, balance), place)
        move_rest(user, sequential, self.device)
        pipeline = Pipeline(module, user, self.pieces.layers, place, self.schedule, self.micro_batches)
        self.pieces.enter_by(sequential, pipeline.entrance)
        return WrappedModel(TrainingStep(module, pipeline), make_optimizers(), EvaluationStep(module, pipeline))

    @hookimpl
    def shard_data(self) -> Shard:
        return Shard(self._pipeline, self._pipelines, shared=self.place.stages > 1)

    @hookimpl
    def skip_gradient_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        return self._without_sync()

    @contextmanager
    def _without_sync(self) -> Iterator[None]:
        self._sync = False
        try:
            yield
        finally:
            self._sync = True

    @hookimpl
    def backward(self, loss: Tensor) -> None:
        super().backward(loss)
        if self._sync:
            average_gradients(own_parameters(self.pieces.layers), self._alike, self.device)

    @hookimpl
    def clip_gradients(
        self, module: nn.Module, optimizer: Optimizer, value: float, algorithm: Literal["norm", "value"]
    ) -> None:
        gradients = gradients_of(optimizer)
        if algorithm == "value":
            clip_by_value(gradients, value)
            return
        square = torch.tensor(square_sum(gradients), dtype=torch.float64, device=self.device)
        dist.all_reduce(square, group=self.place.group)
        factor = clip_factor(float(square), value)
        for gradient in gradients:
            gradient.mul_(factor)

    @hookimpl
    def gather_state(self, module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
        return self.pieces.gather(module, optimizers) if self._pipeline == 0 else None

    @hookimpl
    def restore_state(self, module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
        self.pieces.restore(module, optimizers, state)

    @hookimpl
    def conclude(self, outcome: T) -> T:
        self.pieces.bring_home()
        return outcome

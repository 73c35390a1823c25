"""Steps of a pipeline: the user's step runs where its parts are, the schedule runs in between."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from builtin_plugins.pipeline.layers import own_parameters
from builtin_plugins.pipeline.report import Report, collect, glimpse, log_everywhere, refuse_other_batch
from builtin_plugins.pipeline.schedule import Place, equal_parts, make_schedule
from core.data.chunks import Chunk, cut_batch
from core.data.nested import batch_size_of, detach_to_host, map_tensors
from core.errors import InterlockError
from core.metrics.recording import Record, recording

KEPT_SHAPES = 8
"""Shapes of batches whose schedules, and buffers, are kept."""


class Captured(BaseException):
    """Carries what a step gave to the sequential out of that step; not an Exception, so that no step catches it."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__()


class Entrance:
    """What the sequential does when a step calls it: the step's side of the pipeline."""

    def __init__(self) -> None:
        self._answer: Callable[[Any], Any] | None = None
        self.calls = 0

    def __call__(self, value: Any) -> Any:
        """Stand for the sequential's ``forward``."""
        if self._answer is None:
            raise InterlockError(
                "the sequential lives on several ranks during the run, which all have to call it: "
                "call it in training_step or an evaluation step only"
            )
        self.calls += 1
        return self._answer(value)

    @contextmanager
    def answering(self, answer: Callable[[Any], Any]) -> Iterator[None]:
        """Answer calls with ``answer`` inside."""
        self._answer, self.calls = answer, 0
        try:
            yield
        finally:
            self._answer = None


def _capture(value: Any) -> Any:
    raise Captured(value)


class Pipeline:
    """One process's part in its pipeline.

    Args:
        router: calling it runs the user's step of the current stage of work.
        module: the user's.
        layers: this stage's.
        place: where it is.
        schedule: the name of the order of forward and backward in training.
        micro_batches: how many are in flight at most.
    """

    def __init__(
        self,
        router: nn.Module,
        module: nn.Module,
        layers: nn.Sequential,
        place: Place,
        schedule: str,
        micro_batches: int,
    ) -> None:
        self.router, self.module, self.layers, self.place = router, module, layers, place
        self.schedule, self.micro_batches = schedule, micro_batches
        self.entrance = Entrance()
        self._schedules: dict[Any, Any] = {}
        self._chunks: list[Chunk] = []
        self._step: tuple[Any, ...] = ()
        self._records: list[Record] = []
        self._uneven: set[int] = set()

    def train(self, batch: Any, *rest: Any) -> Tensor:
        """Run forward and backward for one batch, and return its loss; gradients come with the loss's backward."""
        self._chunks = self._cut(batch)
        given = self._input(batch, *rest) if self.place.is_first else None
        self._step, self._records = rest, []
        learning = own_parameters(self.layers)
        before = [parameter.grad for parameter in learning]
        for parameter in learning:
            parameter.grad = None
        losses: list[Tensor] = []
        self._run(self._schedule_for(batch, given, training=True), given, losses)
        new = [parameter.grad for parameter in learning]
        for parameter, gradient in zip(learning, before, strict=True):
            parameter.grad = gradient
        loss = torch.stack([loss.detach() for loss in losses]).mean() if self.place.is_last else None
        report = self._exchange(batch, loss)
        if loss is None:
            loss = torch.tensor(report.loss, device=self.place.device)
        anchor = torch.zeros((), device=self.place.device, requires_grad=True)
        parts = len(self._chunks)
        return _Loss.apply(anchor, loss, lambda scale: _commit(learning, new, scale / parts))  # type: ignore[no-untyped-call, no-any-return]

    def evaluate(self, batch: Any, *rest: Any) -> Any:
        """Run an evaluation step for one batch, and return on every stage what it returned on the last."""
        self._chunks = self._cut(batch)
        given = self._input(batch, *rest) if self.place.is_first else None
        held = [(parameter, parameter.grad) for parameter in self.layers.parameters()]
        output = self._run(self._schedule_for(batch, given, training=False), given)
        for parameter, gradient in held:
            parameter.grad = gradient
        returned: Any = None
        self._records = []
        if self.place.is_last:
            with self.entrance.answering(lambda _: output), recording(batch) as record:
                returned = self.router(batch, *rest)
            self._check_calls("the step")
            self._records = [record]
        outputs = self._exchange(batch, None, returned).outputs
        return returned if self.place.is_last else map_tensors(outputs, lambda t: t.to(self.place.device))

    def _cut(self, batch: Any) -> list[Chunk]:
        size = batch_size_of(batch)
        wanted = min(size, self.micro_batches)
        parts = equal_parts(size, wanted)
        if parts < wanted and self.place.is_first and size not in self._uneven:
            self._uneven.add(size)
            warnings.warn(
                f"a batch of {size} samples is cut into {parts} micro-batches, not {wanted}: they have to be equal",
                UserWarning,
            )
        return cut_batch(batch, parts)

    def _input(self, batch: Any, *rest: Any) -> Tensor:
        """Return what the user's step gives to the sequential for the whole batch."""
        with self.entrance.answering(_capture), recording(batch):  # what it logs before is logged by the last stage
            try:
                self.router(batch, *rest)
            except Captured as captured:
                given = captured.value
            else:
                raise InterlockError("the step did not call the sequential, so there is nothing to run in a pipeline")
        if not isinstance(given, Tensor) or given.ndim == 0 or given.shape[0] % len(self._chunks):
            what = f"a tensor of shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
            raise InterlockError(
                f"the sequential was given {what}, which cannot be cut into {len(self._chunks)} micro-batches\n"
                "  hint: give it one tensor whose first dimension counts the samples of the batch"
            )
        return given.detach()

    def _schedule_for(self, batch: Any, given: Tensor | None, *, training: bool) -> Any:
        """Return the schedule for batches of this shape; the first one makes all stages agree on it."""
        shapes: list[Any] = []
        map_tensors(batch, lambda tensor: shapes.append((tensor.shape, tensor.dtype)) or tensor)  # type: ignore[func-returns-value]
        key = (training, self.layers.training, *shapes)
        if key not in self._schedules:
            if len(self._schedules) == KEPT_SHAPES:
                self._schedules.pop(next(iter(self._schedules)))
            loss = self._loss if training else None
            parts = len(self._chunks)
            self._schedules[key] = make_schedule(self.schedule, self.layers, self.place, given, parts, loss)
        return self._schedules[key]

    def _run(self, schedule: Any, given: Tensor | None, losses: list[Tensor] | None = None) -> Any:
        arguments = () if given is None else (given.to(self.place.device),)
        keywords: dict[str, Any] = {}
        if losses is not None and self.place.is_last:
            # the target of each micro-batch is its number: what the loss needs beside the output is in the batch
            keywords = {"target": torch.arange(len(self._chunks)), "losses": losses, "return_outputs": False}
        try:
            return schedule.step(*arguments, **keywords)
        except RuntimeError as error:
            if error.__cause__ is None or "failed to run" not in str(error).lower():
                raise
            # torch wraps what a layer raised, and its first line says nothing of it
            raise error.__cause__ from None

    def _loss(self, output: Tensor, number: Tensor) -> Tensor:
        """Return the loss of one micro-batch, from the user's step with the pipeline's output in it."""
        chunk = self._chunks[int(number)].batch
        with self.entrance.answering(lambda _: output), recording(chunk) as record:
            returned = self.router(chunk, *self._step)
        self._records.append(record)
        loss = returned if isinstance(returned, Tensor) or returned is None else returned["loss"]
        if loss is None or loss.numel() != 1:
            what = "None" if loss is None else f"a loss of shape {tuple(loss.shape)}"
            raise InterlockError(f"training_step returned {what} for a micro-batch; a pipeline needs a scalar loss")
        self._check_calls("training_step")
        return loss.reshape(())

    def _check_calls(self, step: str) -> None:
        if self.entrance.calls != 1:
            raise InterlockError(
                f"{step} called the sequential {self.entrance.calls} times; in a pipeline it runs once per batch"
            )

    def _exchange(self, batch: Any, loss: Tensor | None, outputs: Any = None) -> Report:
        """Let the last stage tell the others about the step, and log on all of them what it logged."""
        own: Report | None = None
        if self.place.is_last:
            value = None if loss is None else loss.item()
            own = Report(value, collect(self._records), glimpse(batch), detach_to_host(outputs))
        report: Report = self.place.tell(own, self.place.stages - 1)
        refuse_other_batch(report.seen, batch, self.place)
        log_everywhere(report, self.module, self.place.is_last)
        return report


class _Loss(torch.autograd.Function):
    """A loss whose gradients are there already: its backward scales and keeps them."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, value: Tensor, commit: Callable[[Tensor], None]) -> Tensor:
        ctx.commit = commit
        return value.clone()

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[None, None, None]:
        ctx.commit(scale)
        return None, None, None


def _commit(parameters: list[nn.Parameter], gradients: list[Tensor | None], scale: Tensor) -> None:
    """Add ``gradients``, times ``scale``, to those of ``parameters``."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        gradient.mul_(scale)
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad.add_(gradient)


class TrainingStep(nn.Module):
    """Calling it runs one training step through the pipeline."""

    def __init__(self, router: nn.Module, pipeline: Pipeline) -> None:
        super().__init__()
        self.router = router
        self._pipeline = pipeline

    def forward(self, batch: Any, *rest: Any) -> Tensor:
        return self._pipeline.train(batch, *rest)


class EvaluationStep(TrainingStep):
    """Calling it runs one evaluation step through the pipeline."""

    def forward(self, batch: Any, *rest: Any) -> Any:
        return self._pipeline.evaluate(batch, *rest)

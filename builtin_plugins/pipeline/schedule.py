"""torch's pipeline schedules, made anew for each shape of batch.

A stage of torch.distributed.pipelining has buffers for one shape of micro-batch. All stages of a pipeline read the
same batches, so they agree without a word on when a new shape has come; they then find out together what shape each
stage hands to the next.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from core.errors import InterlockError

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
BLOCK, HEAD = 1024, 8
"""Bytes that are sent in any case when stages tell each other something, and those of them that hold its length."""


class Place(NamedTuple):
    """Where a process is in its pipeline."""

    stage: int
    stages: int
    group: dist.ProcessGroup | None
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether it takes the batch."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether it has the output and the loss."""
        return self.stage == self.stages - 1

    def global_rank(self, stage: int) -> int:
        """Return the rank that has ``stage`` of this pipeline."""
        return stage if self.group is None else dist.get_global_rank(self.group, stage)

    def tell(self, value: Any, stage: int) -> Any:
        """Give every stage of this pipeline what ``stage`` has; all call it.

        What is told in each step fits into one block, so that it is sent at once, its length with it.
        """
        data = pickle.dumps(value) if self.stage == stage else b""
        text = self._send(len(data).to_bytes(HEAD, "little") + data[: BLOCK - HEAD], BLOCK, stage)
        length = int.from_bytes(text[:HEAD], "little")
        text = text[HEAD : HEAD + length]
        if length > len(text):
            text += self._send(data[len(text) :], length - len(text), stage)
        return value if self.stage == stage else pickle.loads(text)

    def _send(self, data: bytes, size: int, stage: int) -> bytes:
        buffer = torch.frombuffer(bytearray(data.ljust(size, b"\0")[:size]), dtype=torch.uint8).to(self.device)
        dist.broadcast(buffer, self.global_rank(stage), self.group)
        return bytes(buffer.tolist())


class Shape(NamedTuple):
    """The shape of one tensor between two stages."""

    size: torch.Size
    dtype: torch.dtype
    requires_grad: bool

    @classmethod
    def of(cls, value: object, source: str, requires_grad: bool) -> Shape:
        """Return the shape of ``value``.

        Raises:
            InterlockError: when it is no tensor: stages hand one tensor to each other.
        """
        if not isinstance(value, Tensor):
            raise InterlockError(f"{source} gives a {type(value).__name__}; in a pipeline every layer gives one tensor")
        return cls(value.shape, value.dtype, requires_grad and value.is_floating_point())

    def meta(self) -> Tensor:
        """Return a tensor of this shape without memory."""
        return torch.empty(self.size, dtype=self.dtype, device="meta", requires_grad=self.requires_grad)


def equal_parts(size: int, wanted: int) -> int:
    """Return the largest number of equal parts that ``size`` samples have, ``wanted`` at most."""
    return max(count for count in range(1, min(size, wanted) + 1) if size % count == 0)


def make_schedule(
    name: str, layers: nn.Module, place: Place, given: Tensor | None, parts: int, loss: Callable[..., Tensor] | None
) -> Any:
    """Return a schedule for micro-batches like those of ``given``; all stages of the pipeline call it.

    Args:
        name: a key of :data:`SCHEDULES`.
        layers: this stage's.
        place: where it is.
        given: on the first stage, what enters the pipeline.
        parts: micro-batches in flight.
        loss: takes output and number of a micro-batch; None to run forward only.
    """
    training = loss is not None
    entering, leaving = _agree(layers, place, given, parts, training)
    stage = PipelineStage(
        layers,
        place.stage,
        place.stages,
        place.device,
        input_args=entering.meta(),
        output_args=leaving.meta(),
        group=place.group,
    )
    # one forward, one backward needs as many micro-batches as stages; with fewer, both orders are the same
    kind = SCHEDULES[name] if training and parts >= place.stages else ScheduleGPipe
    return kind(stage, parts, loss, scale_grads=False)


def _agree(layers: nn.Module, place: Place, given: Tensor | None, parts: int, training: bool) -> tuple[Shape, Shape]:
    """Return the shapes that enter and leave this stage, stage by stage."""
    shape: Shape | None = None
    entering = leaving = None
    if place.is_first:
        assert given is not None, "the first stage has the input"
        shape = Shape.of(given[: given.shape[0] // parts], "the input", False)
    for number in range(place.stages):
        if number == place.stage:
            entering = place_shape = shape
            assert place_shape is not None, "the stage before has told it"
            shape = leaving = _run_once(layers, place_shape, given, place, training)
        if number < place.stages - 1:
            shape = place.tell(shape, number)
    assert entering is not None, "every stage has its turn"
    assert leaving is not None, "every stage has its turn"
    return entering, leaving


def _run_once(layers: nn.Module, shape: Shape, given: Tensor | None, place: Place, training: bool) -> Shape:
    """Return the shape that ``layers`` make of ``shape``, and leave no trace."""
    if given is not None:
        value = given[: shape.size[0]].to(place.device)
    else:
        value = torch.zeros(shape.size, dtype=shape.dtype, device=place.device)
    with torch.no_grad(), _untouched(layers, place.device):
        out = layers(value)
    learns = training and (shape.requires_grad or any(p.requires_grad for p in layers.parameters()))
    return Shape.of(out, f"stage {place.stage}", learns)


@contextmanager
def _untouched(layers: nn.Module, device: torch.device) -> Iterator[None]:
    """Put random numbers and buffers back afterwards."""
    before = [(buffer, buffer.clone()) for buffer in layers.buffers()]
    devices = [device] if device.type != "cpu" else []
    with torch.random.fork_rng(devices=devices):
        yield
    for buffer, value in before:
        buffer.copy_(value)

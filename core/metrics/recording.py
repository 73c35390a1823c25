"""Hold back what one replica of a step logs, and log for all replicas together what they came to.

Several replicas of one process log at the same time and for a part of the batch each. What they log is recorded,
replica by replica, and handed on once all are done: in the order of the first replica, each value once, so that the
exchange between ranks happens as often as if there had been one replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from core.data.nested import batch_size_of

if TYPE_CHECKING:
    from core.metrics.results import Results


class Logged(NamedTuple):
    """One call of ``Results.log``; ``how`` are its keywords other than ``batch_size``."""

    results: Results
    name: str
    value: Any
    batch_size: int
    how: dict[str, Any]


class Record:
    """What one replica has logged, in order.

    Args:
        batch: the replica's part of the batch; its size weighs a value that was logged without ``batch_size``.
    """

    def __init__(self, batch: Any) -> None:
        self.calls: list[Logged] = []
        self._size = batch_size_of(batch)

    def add(self, results: Results, name: str, value: Any, batch_size: int | None, how: dict[str, Any]) -> None:
        """Take one call of ``results.log``."""
        value = value.detach() if isinstance(value, Tensor) else getattr(value, "shared_metric", value)
        self.calls.append(Logged(results, name, value, self._size if batch_size is None else batch_size, how))


RECORD: ContextVar[Record | None] = ContextVar("interlock_record", default=None)
"""Where calls of ``log`` go in this thread; None hands them on at once."""
record = RECORD.get
"""Returns the record of this thread; bound once, for each ``log`` calls it."""


@contextmanager
def recording(batch: Any) -> Iterator[Record]:
    """Record in this thread what is logged inside."""
    record = Record(batch)
    token = RECORD.set(record)
    try:
        yield record
    finally:
        RECORD.reset(token)


def log_together(records: Sequence[Record]) -> None:
    """Log what the replicas logged, each name once for its n-th call in every replica."""
    together: dict[tuple[int, str, int], list[Logged]] = {}
    for record in records:
        counts: dict[tuple[int, str], int] = {}
        for call in record.calls:
            key = (id(call.results), call.name)
            counts[key] = counts.get(key, 0) + 1
            together.setdefault((*key, counts[key]), []).append(call)
    for calls in together.values():
        first = calls[0]
        size = sum(call.batch_size for call in calls)
        first.results.log(first.name, _combined(calls, size), batch_size=size, **first.how)


def _combined(calls: Sequence[Logged], size: int) -> Any:
    """Return one value for the calls' values, as their ``reduce_fx`` says.

    A single one stays as it is; so does a metric object, which has taken all replicas' parts of the batch already, and
    a value of a wrong type, which ``log`` refuses in its own words.
    """
    values = [call.value for call in calls]
    others = [v for v in values if isinstance(v, bool) or not isinstance(v, Tensor | int | float)]
    others += [v for v in values if isinstance(v, Tensor) and v.numel() != 1]
    if others or len(values) == 1:
        return (others or values)[0]
    tensors = [v for v in values if isinstance(v, Tensor)]
    if tensors:
        values = [v.to(tensors[0].device) if isinstance(v, Tensor) else v for v in values]
    reduction = reduction_name(calls[0].how.get("reduce_fx", "mean"))
    if reduction == "mean":
        return sum(v * call.batch_size for v, call in zip(values, calls, strict=True)) / size
    return {"min": min, "max": max}.get(reduction, sum)(values)


def reduction_name(reduction: Any) -> str:
    """Return the name of a reduction that was given by name or as a function."""
    return reduction if isinstance(reduction, str) else getattr(reduction, "__name__", "")

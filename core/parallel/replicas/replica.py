"""One replica's part of a step."""

from __future__ import annotations

from typing import Any

from torch import nn

from core.metrics.recording import Record, recording
from core.parallel.replicas.ambient import Ambient


class Outcome:
    """What one replica's step came to."""

    def __init__(self, outputs: Any, record: Record) -> None:
        self.outputs, self.record = outputs, record


def run_replica(module: nn.Module, ambient: Ambient, batch: Any, rest: tuple[Any, ...]) -> Outcome:
    """Run one replica's step in this thread, in the surroundings of the thread that asked for it."""
    with ambient.entered(), recording(batch) as record:
        return Outcome(module(batch, *rest), record)

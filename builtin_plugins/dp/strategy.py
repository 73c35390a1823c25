"""Data parallelism inside one process."""

from __future__ import annotations

from core.parallel.replicas import ReplicaStrategy


class DataParallelStrategy(ReplicaStrategy):
    """Everything is :class:`ReplicaStrategy`'s; the class gives the declaration an implementation of its own."""

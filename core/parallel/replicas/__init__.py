"""The layer "single process, multiple devices": one process runs replicas of a step side by side."""

from core.parallel.replicas.step import ReplicatedStep
from core.parallel.replicas.strategy import ReplicaStrategy, replica_devices

__all__ = ["ReplicaStrategy", "ReplicatedStep", "replica_devices"]

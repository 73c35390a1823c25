"""DistributedDataParallel in spawned processes."""

from builtin_plugins.ddp.strategy import DDPStrategy


class DDPSpawnStrategy(DDPStrategy):
    """As :class:`DDPStrategy`; the plan says that the processes are spawned."""

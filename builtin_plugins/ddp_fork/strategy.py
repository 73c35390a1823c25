"""DistributedDataParallel in forked processes."""

from builtin_plugins.ddp.strategy import DDPStrategy


class DDPForkStrategy(DDPStrategy):
    """As :class:`DDPStrategy`; the plan says that the processes are forks of this one."""

"""fairscale's sharded data parallelism in spawned processes."""

from builtin_plugins.sharded.strategy import ShardedStrategy


class ShardedSpawnStrategy(ShardedStrategy):
    """As :class:`ShardedStrategy`; the plan says that the processes are spawned."""

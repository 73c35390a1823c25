"""Options that every strategy with several processes has (torch-free, for declarations)."""

from core.declarations import Option

PROCESS_OPTIONS = (
    Option("start_timeout", 120.0, "seconds within which all ranks must have started"),
    Option("timeout", 600.0, "seconds that a rank waits for the others in any exchange"),
)

"""How many simulated devices there are."""

from core.declarations import Availability


def probe() -> Availability:
    """Return no fixed number: each process simulates a device of its own."""
    return Availability(count=None)

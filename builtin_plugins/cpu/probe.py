"""How many devices the cpu accelerator has."""

from core.declarations import Availability


def probe() -> Availability:
    """Return no fixed number: each process of a run is one device, and a user may start as many as they like."""
    return Availability(count=None)

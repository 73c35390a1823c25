"""One process on one device."""

from core.plugins import Strategy


class SingleDeviceStrategy(Strategy):
    """Nothing to start and nothing to exchange: every hook has its single-process meaning."""

"""Everything in float32."""

from core.plugins import Precision


class Float32Precision(Precision):
    """Weights and arithmetic as torch makes them."""

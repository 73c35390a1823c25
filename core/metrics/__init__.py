"""What ``self.log`` collects: step values, epoch means weighted by batch size, and their meeting across ranks."""

from core.metrics.results import Results

__all__ = ["Results"]

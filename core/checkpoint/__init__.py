"""Checkpoints: what is in them, and how they are written and read."""

from core.checkpoint.io import write_checkpoint
from core.checkpoint.read import read_checkpoint

__all__ = ["read_checkpoint", "write_checkpoint"]

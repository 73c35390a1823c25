"""Checkpoints: what is in them, and how they are written and read."""

from core.checkpoint.io import read_checkpoint, write_checkpoint

__all__ = ["read_checkpoint", "write_checkpoint"]

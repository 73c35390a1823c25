"""Callbacks: code that runs at named points of a run, beside the module's own."""

from core.callbacks.base import Callback
from core.callbacks.model_checkpoint import ModelCheckpoint
from core.callbacks.progress_bar import ProgressBar

__all__ = ["Callback", "ModelCheckpoint", "ProgressBar"]

"""Searches that run before training: for a batch size, a learning rate, free devices."""

from core.tuner.devices import find_usable_cuda_devices
from core.tuner.learning_rate import LRFinder
from core.tuner.tuner import Tuner

__all__ = ["LRFinder", "Tuner", "find_usable_cuda_devices"]

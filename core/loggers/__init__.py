"""Loggers: where metrics go."""

from core.loggers.base import Logger
from core.loggers.csv import CSVLogger

__all__ = ["CSVLogger", "Logger"]

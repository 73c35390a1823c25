"""Loggers: where metrics go."""

from core.loggers.base import Logger
from core.loggers.console import ConsoleLogger
from core.loggers.csv import CSVLogger
from core.loggers.dummy import DummyLogger
from core.loggers.mlflow import MLFlowLogger
from core.loggers.tensorboard import TensorBoardLogger

__all__ = ["CSVLogger", "ConsoleLogger", "DummyLogger", "Logger", "MLFlowLogger", "TensorBoardLogger"]

"""Callbacks: code that runs at named points of a run, beside the module's own.

The names are resolved when they are first used, so that :mod:`core.callbacks.installed` can list what others bring
without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.callbacks.accumulation import GradientAccumulationScheduler as GradientAccumulationScheduler
    from core.callbacks.base import Callback as Callback
    from core.callbacks.batch_size_finder import BatchSizeFinder as BatchSizeFinder
    from core.callbacks.device_stats import DeviceStatsMonitor as DeviceStatsMonitor
    from core.callbacks.early_stopping import EarlyStopping as EarlyStopping
    from core.callbacks.exception_checkpoint import OnExceptionCheckpoint as OnExceptionCheckpoint
    from core.callbacks.installed import installed_callbacks as installed_callbacks
    from core.callbacks.lambda_callback import LambdaCallback as LambdaCallback
    from core.callbacks.learning_rate_finder import LearningRateFinder as LearningRateFinder
    from core.callbacks.learning_rate_monitor import LearningRateMonitor as LearningRateMonitor
    from core.callbacks.model_checkpoint import ModelCheckpoint as ModelCheckpoint
    from core.callbacks.model_summary import ModelSummary as ModelSummary
    from core.callbacks.prediction_writer import BasePredictionWriter as BasePredictionWriter
    from core.callbacks.prediction_writer import PredictionWriter as PredictionWriter
    from core.callbacks.progress_bar import ProgressBar as ProgressBar
    from core.callbacks.stochastic_weight_averaging import StochasticWeightAveraging as StochasticWeightAveraging
    from core.callbacks.timer import Timer as Timer
    from core.callbacks.weight_averaging import EMAWeightAveraging as EMAWeightAveraging
    from core.callbacks.weight_averaging import WeightAveraging as WeightAveraging

_MODULES = {
    "BasePredictionWriter": "prediction_writer",
    "BatchSizeFinder": "batch_size_finder",
    "Callback": "base",
    "DeviceStatsMonitor": "device_stats",
    "EMAWeightAveraging": "weight_averaging",
    "EarlyStopping": "early_stopping",
    "GradientAccumulationScheduler": "accumulation",
    "LambdaCallback": "lambda_callback",
    "LearningRateFinder": "learning_rate_finder",
    "LearningRateMonitor": "learning_rate_monitor",
    "ModelCheckpoint": "model_checkpoint",
    "ModelSummary": "model_summary",
    "OnExceptionCheckpoint": "exception_checkpoint",
    "PredictionWriter": "prediction_writer",
    "ProgressBar": "progress_bar",
    "StochasticWeightAveraging": "stochastic_weight_averaging",
    "Timer": "timer",
    "WeightAveraging": "weight_averaging",
    "installed_callbacks": "installed",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'core.callbacks' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(import_module(f"core.callbacks.{_MODULES[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]

"""The stages of work: fit, validate, test and predict, each checked in the caller and run in every process."""

from core.stages.base import Stage, StageResult
from core.stages.evaluate import EvaluateStage
from core.stages.fit import FitStage

__all__ = ["EvaluateStage", "FitStage", "Stage", "StageResult"]

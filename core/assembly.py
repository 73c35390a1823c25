"""Make the Trainer's lists of loggers and callbacks from what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.callbacks import Callback, ModelCheckpoint, ModelSummary, ProgressBar
from core.callbacks.installed import load_callbacks, wanted_callbacks
from core.errors import InvalidArgument, WrongType
from core.interop import refuse_foreign_callback
from core.loggers import CSVLogger, Logger


def make_loggers(given: bool | Logger | Sequence[Logger] | None, root: str) -> list[Logger]:
    """Return the loggers; by default one CSV file below ``root``."""
    if given is None or given is True:
        return [CSVLogger(root)]
    if given is False:
        return []
    loggers: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    for logger in loggers:
        if isinstance(logger, type) or not callable(getattr(logger, "log_metrics", None)):
            raise WrongType(f"logger must be a Logger, a list of them, True or False, not {type(logger).__name__}")
    return loggers


def make_callbacks(
    given: Callback | str | Sequence[Callback | str] | None, checkpointing: bool, bar: bool, summary: bool, trying: bool
) -> list[Callback]:
    """Return the callbacks with those that the Trainer adds, in the order in which they run.

    A name stands for what an installed package brings. Checkpoints come last, so that they hold what the other
    callbacks did at the same point.
    """
    asked: list[Any] = list(given) if isinstance(given, list | tuple) else [] if given is None else [given]
    asked += [name for name in wanted_callbacks() if name not in asked]
    callbacks: list[Any] = []
    for each in asked:
        callbacks += load_callbacks(each) if isinstance(each, str) else [each]
    for callback in callbacks:
        if isinstance(callback, type) or not callable(getattr(callback, "on_train_start", None)):
            raise WrongType(f"callbacks must be Callback objects, not {type(callback).__name__} {callback!r}")
        refuse_foreign_callback(callback)
    saving: list[Callback] = [c for c in callbacks if isinstance(c, ModelCheckpoint)]
    if saving and not checkpointing:
        raise InvalidArgument("enable_checkpointing=False, but a ModelCheckpoint is among the callbacks; drop one")
    others: list[Callback] = [c for c in callbacks if c not in saving]
    if trying:
        saving = []
    elif checkpointing and not saving:
        saving = [ModelCheckpoint()]
    if bar and not any(isinstance(c, ProgressBar) for c in others):
        others.append(ProgressBar())
    if summary and not any(isinstance(c, ModelSummary) for c in others):
        others.append(ModelSummary())
    return in_order([*others, *saving])


def in_order(callbacks: Sequence[Callback]) -> list[Callback]:
    """Return the callbacks, those that save last, and refuse two that share a state.

    Raises:
        InvalidArgument: when two callbacks would use one place in a checkpoint.
    """
    ordered = sorted(callbacks, key=lambda callback: isinstance(callback, ModelCheckpoint))
    keys: dict[str, Callback] = {}
    for callback in ordered:
        key = getattr(callback, "state_key", "")
        if key in keys and callback.state_dict():
            raise InvalidArgument(
                f"two callbacks share the state_key {key!r}, so a checkpoint could hold only one of them\n"
                "  hint: give one of them a state_key of its own"
            )
        keys[key] = callback
    return ordered

"""Make a module from a checkpoint: ours, or one that was written for a LightningModule."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from torch import nn

from core.checkpoint.read import read_checkpoint
from core.errors import CheckpointError
from core.hyperparameters import AttributeDict

M = TypeVar("M", bound=nn.Module)


def make_module(cls: type[M], path: str, weights_only: bool, strict: bool | None, given: dict[str, Any]) -> M:
    """See :meth:`core.module.Module.load_from_checkpoint`."""
    checkpoint = read_checkpoint(path, weights_only)
    if "state_dict" not in checkpoint:
        raise CheckpointError(f"checkpoint {path!r} holds no weights: there is no 'state_dict' in it")
    values: dict[str, Any] = AttributeDict(checkpoint.get("hyper_parameters", {}))
    name = str(checkpoint.get("hparams_name"))
    held = inspect.signature(cls).parameters.get(name)
    if held is not None and held.kind is not inspect.Parameter.VAR_KEYWORD and name not in values:
        values = {name: values}  # one argument held all of them
    module = _make(cls, path, {**values, **given})
    configure = getattr(module, "configure_model", None)
    if callable(configure):
        configure()  # where its parts are made there, as they are in a run
    on_load = getattr(module, "on_load_checkpoint", None)
    if callable(on_load):
        on_load(checkpoint)
    strict = bool(getattr(module, "strict_loading", True)) if strict is None else strict
    try:
        module.load_state_dict(checkpoint["state_dict"], strict=strict)
    except RuntimeError as error:
        raise CheckpointError(f"checkpoint {path!r} does not fit {cls.__name__}: {error}") from error
    return module


def _make(cls: type[M], path: str, values: dict[str, Any]) -> M:
    parameters = inspect.signature(cls).parameters.values()
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        values = {p.name: values[p.name] for p in parameters if p.name in values}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind in kinds]
    missing = [name for name in needed if name not in values]
    if missing:
        raise CheckpointError(
            f"checkpoint {path!r} has no hyperparameter {', '.join(missing)}, which {cls.__name__} needs\n"
            "  hint: call self.save_hyperparameters() in __init__, or pass the argument to load_from_checkpoint"
        )
    return cls(**values)

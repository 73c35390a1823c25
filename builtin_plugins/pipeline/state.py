"""The state of a model in pieces: which of it is where, put together for a checkpoint and taken apart again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from core.errors import CheckpointError


def indexed_parameters(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of ``optimizer`` in the order that its saved state counts them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def own_state(optimizer: Optimizer, elsewhere: Collection[int]) -> dict[int, Any]:
    """Return the saved state of the parameters that are here, by their number.

    Args:
        optimizer: over all parameters, stand-ins included.
        elsewhere: ids of the stand-ins.
    """
    parameters = indexed_parameters(optimizer)
    saved: dict[int, Any] = optimizer.state_dict()["state"]
    return {number: state for number, state in saved.items() if id(parameters[number]) not in elsewhere}


def whole_state(optimizer: Optimizer, pieces: Collection[Mapping[int, Any]]) -> dict[str, Any]:
    """Return the optimizer's state in torch's plain layout, put together from ``pieces``."""
    merged = {number: state for piece in pieces for number, state in piece.items()}
    return {**optimizer.state_dict(), "state": dict(sorted(merged.items()))}


def load_own(optimizer: Optimizer, saved: Mapping[str, Any], elsewhere: Collection[int]) -> None:
    """Load what is saved for the parameters that are here; state of the others would only take memory."""
    parameters = indexed_parameters(optimizer)
    state = {
        number: value
        for number, value in saved["state"].items()
        if number < len(parameters) and id(parameters[number]) not in elsewhere
    }
    optimizer.load_state_dict({**saved, "state": state})


def load_module(module: nn.Module, saved: Mapping[str, Any], elsewhere: Collection[str]) -> None:
    """Load the part of a full ``state_dict`` that is here, and hold all of its names against the module.

    Args:
        module: the user's.
        saved: the full state.
        elsewhere: names of what other ranks load.

    Raises:
        CheckpointError: when names are missing or too many.
    """
    here = {name: value for name, value in saved.items() if name not in elsewhere}
    result = module.load_state_dict(here, strict=False)
    missing = [name for name in result.missing_keys if name not in elsewhere]
    missing += [name for name in elsewhere if name not in saved]
    if missing or result.unexpected_keys:
        parts = [("lacks", missing), ("has too much:", result.unexpected_keys)]
        said = "; ".join(f"it {verb} {', '.join(names)}" for verb, names in parts if names)
        raise CheckpointError(f"the saved weights do not fit {type(module).__name__}: {said}")

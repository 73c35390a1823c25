"""States whose tensors lie in parts on several ranks, or in a folder: told apart without loading what handles them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

REST = "checkpoint.pt"
"""The file of a folder that holds what is no tensor of the module or its optimizers."""
STATES = ("state_dict", "optimizer_states")


class Stored(NamedTuple):
    """A tensor that is left in its folder, in the place of the tensor."""

    folder: str
    key: str
    shape: torch.Size
    dtype: torch.dtype


def is_sharded(state: Mapping[str, Any] | None) -> bool:
    """Tell whether a state holds tensors of which each rank has a part."""
    module = sys.modules.get("torch.distributed.tensor")
    if state is None or module is None:  # nobody can have made one
        return False
    held = tensors_by_path({name: state.get(name) for name in STATES})
    return any(isinstance(tensor, module.DTensor) for tensor in held.values())


def tensors_by_path(state: Any, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors of a nested state by the path to them."""
    if isinstance(state, Tensor):
        return {prefix: state}
    items: Any = state.items() if isinstance(state, Mapping) else enumerate(state) if _is_list(state) else ()
    found: dict[str, Tensor] = {}
    for key, value in items:
        found |= tensors_by_path(value, f"{prefix}/{key}" if prefix else str(key))
    return found


def with_leaves(state: Any, change: Callable[[str, Any], Any], prefix: str = "") -> Any:
    """Return a nested state with every leaf changed, given the path to it."""
    if isinstance(state, Mapping):
        return {
            key: with_leaves(value, change, f"{prefix}/{key}" if prefix else str(key)) for key, value in state.items()
        }
    if _is_list(state):
        return type(state)(with_leaves(value, change, f"{prefix}/{number}") for number, value in enumerate(state))
    return change(prefix, state)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and not isinstance(value, torch.Size | Stored)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Tell whether ``path`` is a folder to which ranks wrote a checkpoint."""
    return Path(path, REST).is_file()


def remove_checkpoint(path: str | os.PathLike[str]) -> None:
    """Remove a checkpoint, be it a file or a folder, if it is there; any other folder stays."""
    if is_folder(path):
        shutil.rmtree(path, ignore_errors=True)
    elif not os.path.isdir(path):
        Path(path).unlink(missing_ok=True)

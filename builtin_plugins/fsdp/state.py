"""The state of sharded modules and optimizers in torch's plain layout, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from core.checkpoint.folder import read_into
from core.checkpoint.parts import Stored
from core.data.nested import map_tensors


def sharded_state(module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any]:
    """Return names and indices as everywhere, and of each sharded tensor this rank's part."""
    states = [optimizer.state_dict() for optimizer in optimizers]
    return {"state_dict": dict(module.state_dict()), "optimizer_states": states}


def whole_state(module: nn.Module, optimizers: list[Optimizer], keep: bool) -> dict[str, Any]:
    """Put all tensors together, one after the other; every rank calls it, and those with ``keep`` get them."""

    def whole(tensor: Tensor) -> Tensor | None:
        gathered = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        return gathered.detach().cpu() if keep else None

    state = sharded_state(module, optimizers)
    gathered: dict[str, Any] = map_tensors(state, whole)
    return gathered


def load_state(module: nn.Module, optimizers: list[Optimizer], state: Mapping[str, Any]) -> None:
    """Load a state whose tensors are whole, or stand in the folder that ranks wrote; each rank keeps its own parts."""
    here = module.state_dict()
    reading: dict[str, Tensor] = {}
    folders: set[str] = set()

    def own_part(value: Any, like: Any) -> Any:
        if not isinstance(value, Stored):
            return part_of(value, like)
        folders.add(value.folder)
        return reading.setdefault(value.key, placed_like(value.shape, value.dtype, like))

    weights = {name: own_part(value, here.get(name)) for name, value in state["state_dict"].items()}
    saved = [
        _optimizer_parts(optimizer, one, own_part)
        for optimizer, one in zip(optimizers, state.get("optimizer_states", ()), strict=False)
    ]
    for folder in folders:  # there is one, or none
        read_into(folder, reading)
    module.load_state_dict(weights)
    for optimizer, one in zip(optimizers, saved, strict=False):
        optimizer.load_state_dict(one)


def _optimizer_parts(
    optimizer: Optimizer, saved: Mapping[str, Any], own_part: Callable[[Any, Any], Any]
) -> dict[str, Any]:
    parameters = dict(enumerate(p for group in optimizer.param_groups for p in group["params"]))
    parts = {
        index: {key: own_part(value, parameters.get(index)) for key, value in entry.items()}
        for index, entry in saved["state"].items()
    }
    return {**saved, "state": parts}


def part_of(value: Any, like: Any) -> Any:
    """Return this rank's part of ``value``, cut as ``like`` is cut; what ``like`` does not resemble stays whole."""
    if not (isinstance(like, DTensor) and isinstance(value, Tensor)) or isinstance(value, DTensor):
        return value
    if value.shape != like.shape:
        return value
    on_device = value.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)


def placed_like(shape: torch.Size, dtype: torch.dtype, like: Any) -> Tensor:
    """Return an empty tensor to read into, cut as ``like`` is cut where it has its shape."""
    if isinstance(like, DTensor) and shape == like.shape:
        return torch.empty_like(like, dtype=dtype)
    return torch.empty(shape, dtype=dtype)

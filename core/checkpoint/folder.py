"""Checkpoints as folders, to which each rank writes its own part of the state.

The folder holds what :mod:`torch.distributed.checkpoint` writes, and one ordinary file with everything that is no
tensor of the module or its optimizers. It can be read part by part, on any number of ranks, or put together to a
plain checkpoint by anyone.
"""

from __future__ import annotations

import inspect
import os
import pickle
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from core.checkpoint.io import read_file, reason, write_checkpoint
from core.checkpoint.parts import REST, STATES, Stored, is_folder, remove_checkpoint, tensors_by_path, with_leaves
from core.errors import CheckpointError

if TYPE_CHECKING:
    from core.loops.run import Run

_METADATA = ".metadata"
_IN_METADATA = {
    "torch.distributed.checkpoint.metadata": (
        "Metadata",
        "TensorStorageMetadata",
        "TensorProperties",
        "ChunkStorageMetadata",
        "MetadataIndex",
        "StorageMeta",
        "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size",),
    "pathlib": ("PosixPath", "WindowsPath", "Path"),
}
"""What torch's description of a folder consists of, beside dtypes."""


def write_folder(run: Run, checkpoint: dict[str, Any], path: str) -> None:
    """Write a checkpoint as a folder; every rank calls it, rank 0 with all of it and the others with their state.

    Whenever the program stops, ``path`` holds the old checkpoint or the new one, whole, or neither for a moment while
    the old one stands beside it.

    Raises:
        CheckpointError: naming ``path``, when a rank cannot write.
    """
    target = Path(path)
    partial, old = (target.with_name(f".{target.name}.{suffix}") for suffix in ("partial", "old"))
    state = {name: checkpoint[name] for name in STATES if name in checkpoint}
    try:
        if run.is_rank_zero:
            if target.is_dir() and not is_folder(target):
                raise OSError("it is a folder, but not one that holds a checkpoint")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        run.hooks.barrier("checkpoint folder", None)
        dcp.save({key: tensor.detach() for key, tensor in tensors_by_path(state).items()}, checkpoint_id=partial)
        if run.is_rank_zero:
            _write_rest(checkpoint, state, partial)
            _put_in_place(partial, target, old)
    except (OSError, RuntimeError, dcp.api.CheckpointException) as error:
        raise CheckpointError(f"checkpoint {path!r} could not be written: {reason(error)}") from error


def _write_rest(checkpoint: dict[str, Any], state: dict[str, Any], folder: Path) -> None:
    without = with_leaves(state, lambda key, value: None if isinstance(value, Tensor) else value)
    write_checkpoint({**checkpoint, **without, "sharded": list(tensors_by_path(state))}, folder / REST)


def _put_in_place(partial: Path, target: Path, old: Path) -> None:
    remove_checkpoint(old)
    if target.exists():
        os.replace(target, old)
    os.replace(partial, target)
    remove_checkpoint(old)


def read_folder(path: str | os.PathLike[str], *, stored: bool) -> dict[str, Any]:
    """Read a checkpoint that is a folder.

    Args:
        path: the folder.
        stored: leave tensors where they are, with :class:`Stored` in their places; else put them together in memory.

    Raises:
        CheckpointError: when a file is missing or damaged, or would run code.
    """
    folder = os.fspath(path)
    rest = read_file(Path(folder, REST))
    keys = set(rest.pop("sharded", ()))
    found = _stored_tensors(folder)
    if keys - found.keys():
        raise CheckpointError(f"checkpoint {folder!r} lacks {', '.join(sorted(keys - found.keys())[:3])}")
    leaves: Mapping[str, Any] = found
    if not stored:
        leaves = {key: torch.empty(found[key].shape, dtype=found[key].dtype) for key in keys}
        read_into(folder, leaves, alone=True)
    states = {name: rest[name] for name in STATES if name in rest}
    return {**rest, **with_leaves(states, lambda key, value: leaves[key] if key in keys else value)}


def _stored_tensors(folder: str) -> dict[str, Stored]:
    try:
        with open(Path(folder, _METADATA), "rb") as file:
            metadata = _MetadataUnpickler(file).load()
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {folder!r} is damaged or not a checkpoint: {error}") from error
    return {
        key: Stored(folder, key, entry.size, entry.properties.dtype)
        for key, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }


class _MetadataUnpickler(pickle.Unpickler):
    """Reads torch's description of the folder, and refuses whatever else a file of this name might hold."""

    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if name in _IN_METADATA.get(module, ()) or is_dtype:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{_METADATA} names {module}.{name}, which does not belong there")


def read_into(folder: str, tensors: Mapping[str, Tensor], *, alone: bool = False) -> None:
    """Fill ``tensors``, by key, from a folder; of a tensor that is cut, each rank reads its part.

    Args:
        folder: as :class:`Stored` names it.
        tensors: whole ones, or parts of which each rank has its own.
        alone: this process reads for itself; else every rank calls it.
    """
    how = {"no_dist": True} if alone and "no_dist" in inspect.signature(dcp.load).parameters else {}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # as it should be here
            dcp.load(dict(tensors), storage_reader=dcp.FileSystemReader(folder), **how)
    except (OSError, RuntimeError, dcp.api.CheckpointException) as error:
        raise CheckpointError(f"checkpoint {folder!r} could not be read: {error}") from error

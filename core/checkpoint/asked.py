"""Which file is meant by the ``ckpt_path`` that people give."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from core.errors import InterlockError, WrongType

if TYPE_CHECKING:
    from core.callbacks.model_checkpoint import ModelCheckpoint
    from core.trainer import Trainer


def path_asked_for(trainer: Trainer, given: Any, *, begins: bool = False) -> str | None:
    """Return the path that ``"best"`` and ``"last"`` stand for, and any other as it is.

    Args:
        trainer: its ModelCheckpoint is asked.
        given: what was given as ``ckpt_path``.
        begins: where nothing was saved yet, ``"last"`` lets the run begin anew, and says so: a job can be started with
            it for the first time, too.

    Raises:
        InterlockError: when there is none.
        WrongType: when it is no path.
    """
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike):
        raise WrongType(f"ckpt_path must be a path, 'best' or 'last', not {type(given).__name__} {given!r}")
    if given not in ("best", "last"):
        return os.fspath(given)
    callback = trainer.checkpoint_callback
    if callback is None:
        raise InterlockError(f"ckpt_path={given!r} asks for a checkpoint, but there is no ModelCheckpoint")
    path = callback.best_model_path if given == "best" else _last(trainer, callback)
    if path:
        return path
    if begins and given == "last":
        if trainer.is_global_zero:
            trainer.warn("ckpt_path='last': the ModelCheckpoint has saved none yet, so this run begins anew")
        return None
    raise InterlockError(f"ckpt_path={given!r} asks for a checkpoint, but the ModelCheckpoint has saved none yet")


def _last(trainer: Trainer, callback: ModelCheckpoint) -> str:
    """Return the last file of this program, or of one before it that saved in the same folder."""
    if callback.last_model_path:
        return callback.last_model_path
    folder = callback.dirpath or os.path.join(trainer.log_dir or trainer.default_root_dir, "checkpoints")
    if not os.path.isdir(folder):
        return ""
    found = [
        entry.path
        for entry in os.scandir(folder)
        if entry.name.startswith(callback.CHECKPOINT_NAME_LAST) and entry.name.endswith(callback.FILE_EXTENSION)
    ]
    return max(found, key=os.path.getmtime, default="")

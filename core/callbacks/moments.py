"""Questions that several callbacks ask a run, and what they do with its files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.trainer import Trainer


def looks_at_epoch_end(trainer: Trainer, wanted: bool | None) -> bool:
    """Tell whether a callback acts at the end of training epochs, rather than whenever validation is over.

    Unless the user said, validation is the moment where it runs more or less often than once per epoch.
    """
    if wanted is not None:
        return wanted
    if not trainer.num_val_batches:
        return True
    interval = trainer.val_check_interval
    once = isinstance(interval, float) and interval == 1.0  # the whole number 1 is every batch
    return bool(trainer.check_val_every_n_epoch == 1 and once)


def say(trainer: Trainer, text: str) -> None:
    """Say something about the run, on rank 0, where it does not mix with the program's output."""
    if trainer.is_global_zero:
        print(text, file=sys.stderr, flush=True)


def save_after_failure(trainer: Trainer, make_path: Callable[[], str], weights_only: bool = False) -> str:
    """Save in a run that was broken off, without hiding why it was; return the path, "" where nothing was saved.

    A rank that fails leaves the others in the middle of an exchange: there is no common state to save, and waiting for
    it would keep the failure from being told. So several ranks save nothing, and a warning says so.
    """
    if trainer.world_size > 1:
        trainer.warn(f"no checkpoint on the exception: {trainer.world_size} ranks have no common state after a failure")
        return ""
    try:
        path = make_path()
        trainer.save_checkpoint(path, weights_only)
    except Exception as error:
        trainer.warn(f"no checkpoint on the exception: {error}")
        return ""
    say(trainer, f"saved {path} on the exception")
    return path


def when_written(trainer: Trainer, action: Callable[[], None]) -> None:
    """Call ``action`` as soon as the checkpoint that is being written is there."""
    run = trainer._run
    if run is not None and run.writer is not None:
        run.writer.afterwards(action)
    else:
        action()


def link_file(target: str, link: str) -> None:
    """Let ``link`` be a symbolic link to ``target``; a copy where the system has no links."""
    path = Path(link)
    beside = path.with_name(f".{path.name}.partial")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    try:
        beside.unlink(missing_ok=True)
        beside.symlink_to(os.path.relpath(target, path.parent))
    except OSError:
        if os.path.isdir(target):
            shutil.copytree(target, beside)
        else:
            shutil.copy(target, beside)
    os.replace(beside, path)

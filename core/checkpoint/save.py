"""Save a checkpoint from all ranks: together, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.checkpoint.content import gather
from core.checkpoint.io import write_checkpoint
from core.checkpoint.parts import is_sharded, remove_checkpoint
from core.errors import CheckpointError

if TYPE_CHECKING:
    from core.loops.run import Run


def save(run: Run, path: str, weights_only: bool, timeout: float) -> None:
    """Gather the state from all ranks and write it on rank 0, at once or in the background.

    A rank that serves has nothing to do with it.

    Raises:
        WaitTimeout: when not every rank comes within ``timeout`` seconds.
        CheckpointError: on every rank, when rank 0 could not write.
    """
    if run.ranks.serves:
        return
    run.hooks.barrier("save_checkpoint", timeout)
    checkpoint = gather(run, run.loop, weights_only=weights_only)
    error: CheckpointError | None = None
    if checkpoint is not None:
        try:
            if is_sharded(checkpoint):
                from core.checkpoint.folder import write_folder  # it loads torch.distributed.checkpoint

                write_folder(run, checkpoint, path)
            elif run.writer is not None:
                run.writer.write(checkpoint, path)
            else:
                write_checkpoint(checkpoint, path)
        except CheckpointError as raised:
            error = raised
    told = run.hooks.broadcast(str(error) if error else None)
    if error is not None:
        raise error
    if told is not None:
        raise CheckpointError(told)


def remove(run: Run | None, path: str) -> None:
    """Remove a checkpoint that is no longer wanted, once the one that is being written is there; rank 0 calls it."""

    def unlink() -> None:
        remove_checkpoint(path)

    if run is not None and run.writer is not None:
        run.writer.afterwards(unlink)
    else:
        unlink()

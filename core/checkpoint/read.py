"""Read a checkpoint, whether it is a file or a folder."""

from __future__ import annotations

import os
from typing import Any

from core.checkpoint.io import read_file
from core.checkpoint.parts import REST, is_folder
from core.errors import CheckpointError


def read_checkpoint(path: str | os.PathLike[str], weights_only: bool = True, *, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint into host memory.

    Args:
        path: the file, or the folder to which ranks wrote their parts.
        weights_only: plain types and tensors only; False runs whatever code a file brings.
        mapped: leave tensors on disk until they are looked at, for who looks at the rest only; see
            :func:`core.checkpoint.folder.read_folder` for what stands in their places in a folder's.

    Raises:
        CheckpointError: naming ``path``, when it is missing, damaged, or holds anything that would run code.
    """
    if os.path.isdir(path):
        from core.checkpoint.folder import read_folder  # it loads torch.distributed.checkpoint, a second's work

        if not is_folder(path):
            raise CheckpointError(f"checkpoint {os.fspath(path)!r} is a folder without {REST}, so it is no checkpoint")
        return read_folder(path, stored=mapped)
    return read_file(path, weights_only, mapped=mapped)

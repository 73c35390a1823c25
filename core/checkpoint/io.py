"""Checkpoints as files: written so that there is always a whole one, and read without running code from them."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from core.errors import CheckpointError

_PLAIN = (str, bytes, int, float, bool, complex, type(None), torch.Tensor, torch.dtype, torch.Size)


def to_plain(value: Any, where: str = "checkpoint") -> Any:
    """Return ``value`` in types that ``torch.load(weights_only=True)`` reads.

    Paths become strings and NumPy numbers become Python's; tensors stay what they are, but for those of devices that
    torch knows from a package only, which are brought to host memory.

    Raises:
        CheckpointError: naming the place and the type of anything else.
    """
    if isinstance(value, torch.Tensor):
        # where torch itself does not know the device, a file could be read only where the device is, too
        return value if value.is_meta or hasattr(torch, value.device.type) else value.detach().cpu()
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        plain: dict[Any, Any] = {to_plain(k, where): to_plain(v, f"{where}[{k!r}]") for k, v in value.items()}
        kind = type(value)
        return kind(plain) if kind is OrderedDict or kind is Counter else plain  # type: ignore[call-arg]
    if isinstance(value, list | tuple):
        items = [to_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    if type(value) is set:
        return {to_plain(item, where) for item in value}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    raise CheckpointError(
        f"{where} holds a {type(value).__module__}.{type(value).__qualname__}, which cannot be read back safely\n"
        "  hint: keep plain types and tensors in state_dict() and on_save_checkpoint"
    )


def write_checkpoint(checkpoint: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write ``checkpoint`` to ``path``: first beside it, then in one move over it.

    Whenever the program or the machine stops, ``path`` holds the old file or the new one, whole.

    Raises:
        CheckpointError: naming ``path``, when it cannot be written; the old file is still there.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    plain = to_plain(checkpoint)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            torch.save(plain, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
        _sync_folder(target.parent)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise CheckpointError(f"checkpoint {os.fspath(path)!r} could not be written: {reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def reason(error: BaseException) -> BaseException:
    """Return what the system said, where ``error`` came of it: torch speaks of positions in its file instead."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return next((link for link in chain if isinstance(link, OSError)), error)


def _sync_folder(folder: Path) -> None:
    """Make the move itself last through a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: str | os.PathLike[str], weights_only: bool = True, *, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint that is one file into host memory.

    Args:
        path: the file.
        weights_only: plain types and tensors only; False runs whatever code the file brings.
        mapped: leave tensors on disk until they are looked at, for who looks at the rest only.

    Raises:
        CheckpointError: naming ``path``, when it is missing, damaged, or holds anything that would run code.
    """
    name = os.fspath(path)
    if not os.path.isfile(path):
        raise CheckpointError(f"checkpoint {name!r} does not exist")
    whole = zipfile.is_zipfile(path)  # the list of a file's parts stands at its end
    try:
        checkpoint = torch.load(path, map_location=_keep_on_host, weights_only=weights_only, mmap=mapped and whole)
    except pickle.UnpicklingError as error:
        raise CheckpointError(_why_not_plain(name, str(error))) from error
    except Exception as error:  # bytes of any kind can end in an error of any kind
        what = str(error) or type(error).__name__
        if not whole:
            what = "it was cut short, or torch.save did not write it" if os.path.getsize(path) else "it is empty"
        raise CheckpointError(f"checkpoint {name!r} is damaged or not a checkpoint: {what}") from error
    if not isinstance(checkpoint, dict):
        raise CheckpointError(f"checkpoint {name!r} holds a {type(checkpoint).__name__}, not a dictionary")
    return checkpoint


def _why_not_plain(name: str, text: str) -> str:
    """Return what to say of a file that torch's safe unpickler does not take; its own text is a page long."""
    foreign = re.search(r"GLOBAL (\S+)", text)
    if foreign is None:
        detail = re.search(r"^Unsupported.*", text, re.MULTILINE)
        return f"checkpoint {name!r} is damaged or not a checkpoint: {detail[0] if detail else text}"
    return (
        f"checkpoint {name!r} holds a {foreign[1]}, which is more than plain types and tensors\n"
        "  hint: if you trust who wrote it, torch.load(path, weights_only=False) runs the code it brings; "
        "save what you need of it in plain types"
    )


def _keep_on_host(storage: Any, location: str) -> Any:
    return storage

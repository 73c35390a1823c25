"""Errors on their way from the rank that answers a request to the one that made it."""

from __future__ import annotations

import pickle
import traceback
from typing import NamedTuple

import torch.distributed as dist

from core.parallel.rendezvous import RankTraceback


class Failure(NamedTuple):
    """What a request raised."""

    error: BaseException
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure of ``error``, in a form that can be sent."""
        text = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # errors of all kinds come by, and not all can be sent
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return cls(error, text)


def is_echo(error: BaseException) -> bool:
    """Tell whether the error says only that another process is gone."""
    return "tensorpipe" in str(error) or "RPC is no longer running" in str(error)


def raise_failure(failure: Failure, worker: str) -> None:
    """Raise what a request to ``worker`` raised there, with its traceback as the cause.

    Raises:
        DistError: when it says only that another process is gone.
    """
    if is_echo(failure.error):
        refuse_silence(failure.error, worker)
    raise failure.error from RankTraceback(f"{worker}\n{failure.text.rstrip()}")


def refuse_silence(error: BaseException, worker: str) -> None:
    """Raise that ``worker`` is gone, as a kind of error that the watch over a run takes for an echo of that.

    Raises:
        DistError: always.
    """
    raise dist.DistError(f"{worker} does not answer any more: {error}") from error

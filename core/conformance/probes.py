"""Small trials inside a run: what the exchanges between ranks return, and what a device can do."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from core.callbacks import Callback
from core.conformance.recorder import loop_ranks
from core.errors import WaitTimeout
from core.trainer import Trainer

OPS = ("sum", "mean", "min", "max")
MEETING = "interlock kit"
LATE_SECONDS = 0.5
MISSING_TIMEOUT = 1.0
PATIENCE = 60.0


class Trial(Callback, ABC):
    """Base: runs :meth:`trials` when the run has started, and writes each answer, or what it raised instead."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    @abstractmethod
    def trials(self, trainer: Trainer) -> dict[str, Callable[[], Any]]:
        """Return the trials by name, in the order in which every rank does them."""

    def on_fit_start(self, trainer: Trainer, module: nn.Module) -> None:
        answers: dict[str, Any] = {}
        for name, trial in self.trials(trainer).items():
            try:
                answers[name] = {"value": trial()}
            except Exception as error:  # the plugin's own code ran: whatever it raised is the answer
                answers[name] = {"error": f"{type(error).__name__}: {error}", "type": type(error).__name__}
        torch.save(answers, Path(self.folder, f"answers{trainer.global_rank}.pt"))


class Exchange(Trial):
    """Reduces, broadcasts and meets."""

    def trials(self, trainer: Trainer) -> dict[str, Callable[[], Any]]:
        found: dict[str, Callable[[], Any]] = {}
        for op in OPS:
            for kind in ("floats", "integers"):
                found[f"{op} of {kind}"] = lambda op=op, kind=kind: _reduce(trainer, op, kind)  # type: ignore[misc]
        found["broadcast"] = lambda: trainer._run.hooks.broadcast(  # type: ignore[union-attr]
            {"rank": trainer.global_rank, "tensor": torch.full((2,), float(trainer.global_rank)), "text": "kit"}
        )
        found["barrier"] = lambda: _meet(trainer, Path(self.folder, "last-rank-is-here"))
        return found


def contribution(rank: int, kind: str) -> Tensor:
    """Return what ``rank`` gives to a reduction; the integers of ranks 0 and 1 have the mean 3.5."""
    if kind == "integers":
        return torch.tensor([3, 4, -7]) + rank
    return torch.tensor([[0.5, -1.0], [2.0, 8.0]]) * (rank + 1)


def _reduce(trainer: Trainer, op: str, kind: str) -> dict[str, Any]:
    run = trainer._run
    assert run is not None, "called inside a run"
    given = contribution(run.ranks.global_rank, kind).to(run.device)
    kept = given.clone()
    result = run.hooks.reduce(given, op)
    return {"result": result.cpu(), "unchanged": bool(torch.equal(given, kept))}


def _meet(trainer: Trainer, sign: Path) -> bool:
    """Let the last rank come late; return whether it was there when the barrier let this one go."""
    run = trainer._run
    assert run is not None, "called inside a run"
    if trainer.global_rank == loop_ranks(trainer) - 1:
        time.sleep(LATE_SECONDS)
        sign.touch()
    run.hooks.barrier(MEETING, PATIENCE)
    return sign.exists()


class Missing(Trial):
    """Lets the last rank stay away from a meeting point until every other one has given up."""

    def trials(self, trainer: Trainer) -> dict[str, Callable[[], Any]]:
        return {"barrier": lambda: self._barrier(trainer)}

    def _barrier(self, trainer: Trainer) -> str:
        run = trainer._run
        assert run is not None, "called inside a run"
        ranks = range(loop_ranks(trainer) - 1)
        signs = [Path(self.folder, f"rank{rank}-gave-up") for rank in ranks]
        if trainer.global_rank not in ranks:
            deadline = time.monotonic() + PATIENCE
            while not all(sign.exists() for sign in signs) and time.monotonic() < deadline:
                time.sleep(0.02)
            timeout = PATIENCE
        else:
            timeout = MISSING_TIMEOUT
        try:
            run.hooks.barrier(MEETING, timeout)
        except WaitTimeout as error:
            return str(error)
        finally:
            Path(self.folder, f"rank{trainer.global_rank}-gave-up").touch()
        return ""


class Device(Trial):
    """Tries on the device what the accelerator's tokens claim."""

    def __init__(self, folder: Path, tokens: tuple[str, ...]) -> None:
        super().__init__(folder)
        self.tokens = tokens

    def trials(self, trainer: Trainer) -> dict[str, Callable[[], Any]]:
        from core.conformance.devices import try_token

        run = trainer._run
        assert run is not None, "called inside a run"
        device = run.device
        return {token: lambda token=token: try_token(token, device) for token in self.tokens}  # type: ignore[misc]

"""What the kit trains, in plain data that programs and tests share (torch-free).

A *case* is one way to train; a *job* is one run of a case by a given combination; a *program* is one start of
Python that works through jobs, in as many processes as the strategy makes of it.
"""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass, field
from typing import Any

PER_RANK = 4
"""Samples of a micro-batch on each rank."""
OVERFLOWING = 1
"""The micro-batch of each epoch whose loss is not finite, in cases that ask for one."""


@dataclass(frozen=True)
class Case:
    """One way to train, done by the Trainer and by hand alike."""

    name: str
    optimizers: str = "sgd"
    micro_batches: int = 3
    epochs: int = 2
    window: int = 1
    clip: float | None = None
    algorithm: str = "norm"
    sync_batchnorm: bool = False
    overflow: bool = False
    manual: bool = False
    during: str = ""
    """What else happens in the run: ``"exchange"``, ``"missing"``, ``"device"``, ``"save"`` or ``"raise"``."""

    def trainer_arguments(self) -> dict[str, Any]:
        """Return the arguments of the Trainer that belong to this case."""
        return {
            "max_epochs": self.epochs,
            "limit_train_batches": self.micro_batches,  # however many ranks share the samples
            "accumulate_grad_batches": self.window,
            "gradient_clip_val": self.clip,
            "gradient_clip_algorithm": self.algorithm,
            "sync_batchnorm": self.sync_batchnorm,
        }


CASES = {
    case.name: case
    for case in (
        Case("plain"),
        Case("groups", optimizers="groups"),
        Case("accumulated", micro_batches=5, window=2),
        Case("clip_norm", clip=0.05),
        Case("clip_value", clip=0.01, algorithm="value"),
        Case("two_optimizers", optimizers="two"),
        Case("closure", optimizers="lbfgs", epochs=1),
        Case("manual", manual=True),
        Case("sync_batchnorm", sync_batchnorm=True),
        Case("overflow", overflow=True),
        Case("saved", optimizers="groups", during="save"),
        Case("device", epochs=1, during="device"),
        Case("exchange", epochs=1, during="exchange"),
        Case("missing", epochs=1, during="missing"),
        Case("raised", during="raise"),
    )
}


Options = dict[str, dict[str, str]]


def read_value(text: str) -> Any:
    """Return the value that ``text`` is in Python, or ``text`` itself where it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@dataclass(frozen=True)
class Job:
    """One run: a case, the plugins, how many devices, and the checkpoint to go on from."""

    name: str
    case: str
    accelerator: str
    precision: str
    strategy: str
    devices: int
    ranks: int
    """Processes among which the samples are divided, as far as the plan tells."""
    per_rank: int = PER_RANK
    resume: str = ""
    alone: bool = False
    """Whether one rank reads what all ranks of the run read that it goes on from."""
    tokens: tuple[str, ...] = ()
    """Claims of an accelerator to try on its device."""
    options: Options = field(default_factory=dict)
    """Options of the plugins, by kind and name, as text."""

    @property
    def samples(self) -> int:
        """Samples of an epoch over all ranks."""
        return CASES[self.case].micro_batches * self.per_rank * self.ranks

    def to_dict(self) -> dict[str, Any]:
        """Return the job in plain types."""
        return asdict(self)


@dataclass(frozen=True)
class Program:
    """One start of Python: the jobs to do, one after the other, and what stands before the worker's name."""

    name: str
    jobs: tuple[Job, ...]
    launcher: tuple[str, ...] = field(default=())

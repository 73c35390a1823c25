"""The settings that say how a sequential is cut, checked before any process starts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from builtin_plugins.pipeline.balance import check_balance, check_example, check_layers, infer
from builtin_plugins.pipeline.layers import find_sequential
from core.arguments import whole
from core.errors import InvalidArgument


class Cutting:
    """Stages, balance and micro-batches, as people give them.

    Args:
        stages: of one pipeline; None for as many as ``balance`` has entries, else as many as there are processes.
        balance: layers of each stage, or ``"parameters"`` or ``"time"``.
        micro_batches: parts of a batch in flight at the same time.

    Raises:
        InvalidArgument: for values that cannot hold whatever the module is.
    """

    def __init__(self, stages: int | None, balance: str | Sequence[int], micro_batches: int) -> None:
        self.balance = check_balance(balance)
        self.micro_batches = whole("micro_batches", micro_batches, least=1)
        self.given_stages = None if stages is None else whole("stages", stages, least=1)
        if not isinstance(self.balance, str):
            if self.given_stages not in (None, len(self.balance)):
                raise InvalidArgument(f"balance {list(self.balance)} has {len(self.balance)} stages, stages={stages}")
            self.given_stages = len(self.balance)

    def stages(self, world_size: int) -> int:
        """Return the number of stages of one pipeline.

        Raises:
            InvalidArgument: when the processes do not make whole pipelines.
        """
        stages = world_size if self.given_stages is None else self.given_stages
        if world_size % stages:
            raise InvalidArgument(
                f"{world_size} devices do not make whole pipelines of {stages} stages\n"
                f"  hint: take a multiple of {stages} devices: the multiple is the number of pipelines side by side"
            )
        return stages

    def check(self, module: nn.Module, world_size: int) -> None:
        """Refuse what cannot work with this module on so many processes.

        Raises:
            InvalidArgument: with the two numbers that do not fit.
        """
        sequential, _ = find_sequential(module)
        check_layers(self.balance, self.stages(world_size), sequential)
        if self.balance == "time":
            check_example(getattr(module, "example_input_array", None))

    def find_balance(self, module: nn.Module, stages: int, device: torch.device) -> tuple[int, ...]:
        """Return the layers of each stage, inferred if need be."""
        if not isinstance(self.balance, str):
            return self.balance
        sequential, _ = find_sequential(module)
        return infer(self.balance, stages, sequential, getattr(module, "example_input_array", None), device)

"""One process's piece of a model, the stand-ins for the others, and the way back to a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from builtin_plugins.pipeline.layers import StandIns, layer_tensors, replace_forward
from builtin_plugins.pipeline.schedule import Place
from builtin_plugins.pipeline.state import load_module, load_own, own_state, whole_state
from core.data.nested import detach_to_host
from core.errors import InterlockError


class Pieces:
    """A module whose sequential is spread over the stages of a pipeline.

    Args:
        module: the user's; its layers of other stages give up their memory.
        stages: its sequential, cut.
        place: which stage this process has.
    """

    def __init__(self, module: nn.Module, stages: Sequence[nn.Sequential], place: Place) -> None:
        self.place = place
        self.layers = stages[place.stage].to(place.device)
        self._others = {
            number: StandIns(stage, f"rank {place.global_rank(number)}")
            for number, stage in enumerate(stages)
            if number != place.stage
        }
        owners = {
            id(tensor): (number, name)
            for number, stage in enumerate(stages)
            for name, tensor in layer_tensors(stage).items()
        }
        held = layer_tensors(module)
        self._names = {name: owners[id(tensor)] for name, tensor in held.items() if id(tensor) in owners}
        self._elsewhere = {name for name, (number, _) in self._names.items() if number != place.stage}
        self._stand_ins = {id(held[name]) for name in self._elsewhere}
        self._undo: list[Callable[[], None]] = []

    def enter_by(self, sequential: nn.Sequential, entrance: Callable[[Any], Any]) -> None:
        """Let calls of the sequential go to ``entrance``, and refuse to take its state for whole, until all is back."""
        self._undo = [
            replace_forward(sequential, entrance),
            sequential.register_state_dict_pre_hook(_refuse_state).remove,  # type: ignore[no-untyped-call]
        ]
        self._sequential = sequential

    def gather(self, module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
        """Return the whole state on the first stage; every stage of the pipeline calls it."""
        piece = (dict(self.layers.state_dict()), [own_state(optimizer, self._stand_ins) for optimizer in optimizers])
        piece = detach_to_host(piece)
        pieces: list[Any] | None = [None] * self.place.stages if self.place.is_first else None
        dist.gather_object(piece, pieces, self.place.global_rank(0), self.place.group)
        if pieces is None:
            return None
        hooks = self._sequential._state_dict_pre_hooks
        before = dict(hooks)
        hooks.clear()
        state = module.state_dict()
        hooks.update(before)
        for name, (number, own_name) in self._names.items():
            state[name] = pieces[number][0][own_name]
        parts = [whole_state(optimizer, [p[1][i] for p in pieces]) for i, optimizer in enumerate(optimizers)]
        return {"state_dict": state, "optimizer_states": parts}

    def restore(self, module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
        """Load this stage's part of a whole state."""
        load_module(module, state["state_dict"], self._elsewhere)
        for optimizer, saved in zip(optimizers, state.get("optimizer_states", ()), strict=False):
            load_own(optimizer, saved, self._stand_ins)

    def bring_home(self) -> None:
        """Make the module whole again on every rank, with the weights of all stages; every rank calls it."""
        own = detach_to_host(dict(self.layers.state_dict()))
        for number in range(self.place.stages):
            state = self.place.tell(own if number == self.place.stage else None, number)
            if number in self._others:
                self._others.pop(number).fill(state)
        for undo in self._undo:
            undo()
        self._elsewhere.clear()


def _refuse_state(*_: Any) -> NoReturn:
    raise InterlockError(
        "the module's layers live on several ranks during the run, so its state_dict() would not be whole\n"
        "  hint: use trainer.save_checkpoint on every rank, or take the state after the run"
    )

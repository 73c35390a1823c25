"""What builds the optimizers of a run when the strategy asks for them."""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer

Change = Callable[[list[Optimizer]], list[Optimizer]]


class OptimizerMaker:
    """Builds the user's optimizers; what wraps ``wrap_model`` may change them before the strategy gets them.

    The strategy calls it when the model is where it stays and before it wraps the model: a plugin whose work belongs
    at that very moment adds a function to ``then``, which takes the optimizers and returns those to train with.
    """

    def __init__(self, make: Callable[[], list[Optimizer]]) -> None:
        self._make = make
        self.then: list[Change] = []

    def __call__(self) -> list[Optimizer]:
        optimizers = self._make()
        for change in self.then:
            optimizers = change(optimizers)
        return optimizers

"""What the strategies that split a model over ranks declare, and refuse for it before any process starts."""

from __future__ import annotations

import pytest
import torch
from support.reference import make_trainer
from support.staged import QUIETER, Staged
from torch.utils.data import DataLoader, TensorDataset

from builtin_plugins import pipeline, rpc, rpc_sequential
from core import Trainer
from core.errors import InvalidCombination
from core.registry import get_registry
from core.rules import Party, party_of, violations

DECLARATIONS = {each.DECLARATION.name: each.DECLARATION for each in (rpc, rpc_sequential, pipeline)}
NEEDS = [
    pytest.param(declaration, need, id=f"{name}-{need.token}")
    for name, declaration in DECLARATIONS.items()
    for need in declaration.needs
]


@pytest.mark.parametrize("name", DECLARATIONS)
def test_declared_and_never_chosen_by_itself(name):
    """The strategy is installed under its name, runs when it is asked for, and "auto" does not take it."""
    assert get_registry().find("strategy", name).declaration == DECLARATIONS[name]
    assert DECLARATIONS[name].preference == 0
    assert make_trainer(strategy=name, devices=2).plan.strategy.name == name
    assert make_trainer(strategy="auto").plan.strategy.name != name


@pytest.mark.parametrize(("declaration", "need"), NEEDS)
def test_every_need_is_refused_when_unmet(declaration, need):
    """Each need that nobody meets is a broken rule with its reason."""
    provided = {alternative for other in declaration.needs if other is not need for alternative in other.alternatives}
    broken = violations([party_of(declaration), Party("the rest", frozenset(provided - set(need.alternatives)))])
    assert [(violation.token, violation.reason) for violation in broken] == [(need.token, need.reason)]


@pytest.mark.parametrize("name", DECLARATIONS)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"precision": "16-mixed"}, "excludes loss_scaling"), ({"sync_batchnorm": True}, "needs sync_batchnorm")],
)
def test_combinations_that_are_refused(name, arguments, said):
    """What the strategy cannot do is refused when the Trainer is made."""
    with pytest.raises(InvalidCombination, match=said):
        make_trainer(strategy=name, devices=2, **arguments)


@pytest.mark.parametrize("name", ["rpc_sequential", "pipeline"])
def test_module_without_a_sequential(name):
    """A module that is no sequential and has none is refused before any process starts, with the reason."""

    class Plain(Staged):
        def __init__(self):
            super().__init__()
            self.layers = self.sequential_module
            del self.sequential_module

    trainer = Trainer(accelerator="cpu", strategy=name, devices=2, max_epochs=1, **QUIETER)
    data = DataLoader(TensorDataset(torch.ones(8, 6), torch.ones(8, 2)), 8)
    with pytest.raises(InvalidCombination, match=r"needs module\.sequential"):
        trainer.fit(Plain(), data)

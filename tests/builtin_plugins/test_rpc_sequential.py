"""What the rpc_sequential strategy refuses before any process starts, and where it puts the stages."""

import pytest
import torch
from support.reference import make_trainer
from support.staged import QUIETER, Staged
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from builtin_plugins.rpc_sequential import DECLARATION
from builtin_plugins.rpc_sequential.pipe import Pipe
from builtin_plugins.rpc_sequential.strategy import RPCSequentialStrategy
from core import Trainer
from core.errors import InterlockError, InvalidArgument, InvalidCombination
from core.registry import get_registry
from core.rules import Party, party_of, violations

DATA = DataLoader(TensorDataset(torch.ones(8, 6), torch.ones(8, 2)), 8)


def fit(module, devices=2, **options):
    """Begin to train; whatever is refused before processes start is raised here."""
    trainer = Trainer(
        accelerator="cpu", strategy=RPCSequentialStrategy(**options), devices=devices, max_epochs=1, **QUIETER
    )
    try:
        trainer.fit(module, DATA)
    finally:
        trainer.end_run()


@pytest.mark.parametrize("balance", [[2, 0, 5], [3, -1], [], "size"])
def test_balance_refused_at_construction(balance):
    """A balance that can fit no module is refused where it is written."""
    with pytest.raises(InvalidArgument, match="balance"):
        RPCSequentialStrategy(balance=balance)


@pytest.mark.parametrize(
    ("options", "devices", "said"),
    [
        ({"balance": [3, 3]}, 2, r"balance \[3, 3\] is for 6 layers, but the sequential has 7"),
        ({"balance": [3, 4]}, 3, "3 devices do not make whole pipelines of 2 stages"),
        ({}, 8, "7 layers cannot be cut into 8 stages"),
        ({"balance": "time"}, 2, "example_input_array"),
        ({"names": ["a", "b", "c"]}, 2, "3 worker names are given for 2 ranks"),
    ],
)
def test_refused_before_any_process(options, devices, said):
    """What does not fit this module or this number of devices is refused at once, in the calling process."""
    with pytest.raises(InvalidArgument, match=said):
        fit(Staged(), devices, **options)


def test_places_of_the_stages():
    """The ranks that run the loop come first and hold first stages; the workers follow, pipeline by pipeline."""
    strategy = RPCSequentialStrategy(stages=3)
    strategy.plan = make_trainer(strategy=strategy, devices=6).plan
    assert (strategy.num_mains, strategy.num_stages) == (2, 3)
    assert [[strategy.rank_of(p, s) for s in range(3)] for p in range(2)] == [[0, 2, 3], [1, 4, 5]]
    assert strategy.alike() == [[2, 4], [3, 5]]
    assert strategy.worker_names()[4] == "worker4"


def test_one_stage_is_the_module_itself():
    """On one device there is nothing to send, and the module trains as it is."""
    module = Staged()
    before = module.state_dict()["sequential_module.0.weight"].clone()
    fit(module, devices=1)
    assert not torch.equal(module.state_dict()["sequential_module.0.weight"], before)


@pytest.mark.parametrize("value", [3, (torch.ones(2),), torch.ones(())])
def test_input_that_cannot_be_cut(value):
    """The sequential takes one tensor whose first dimension counts samples."""
    with pytest.raises(InterlockError, match="cannot be cut into micro-batches"):
        Pipe(nn.Identity(), [], 4)(value)


def test_declared_and_never_chosen_by_itself():
    """The name that once became a single device without a word is a strategy of its own, and "auto" leaves it."""
    assert get_registry().find("strategy", "rpc_sequential").declaration == DECLARATION
    assert DECLARATION.preference == 0
    assert make_trainer(strategy="rpc_sequential", devices=2).plan.strategy.name == "rpc_sequential"


def test_module_without_a_sequential():
    """A module that is no sequential and has none is refused before any process starts, with the reason."""

    class Plain(Staged):
        def __init__(self):
            super().__init__()
            self.layers = self.sequential_module
            del self.sequential_module

    with pytest.raises(InvalidCombination, match=r"needs module\.sequential"):
        fit(Plain())


@pytest.mark.parametrize("need", DECLARATION.needs, ids=lambda need: need.token)
def test_every_need_is_refused_when_unmet(need):
    """Each need that nobody meets is a broken rule with its reason."""
    provided = {alternative for other in DECLARATION.needs if other is not need for alternative in other.alternatives}
    broken = violations([party_of(DECLARATION), Party("the rest", frozenset(provided - set(need.alternatives)))])
    assert [(violation.token, violation.reason) for violation in broken] == [(need.token, need.reason)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"precision": "16-mixed"}, "excludes loss_scaling"), ({"sync_batchnorm": True}, "needs sync_batchnorm")],
)
def test_combinations_that_are_refused(arguments, said):
    """What the strategy cannot do is refused when the Trainer is made."""
    with pytest.raises(InvalidCombination, match=said):
        make_trainer(strategy="rpc_sequential", devices=2, **arguments)

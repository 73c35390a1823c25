"""What the rpc_sequential strategy refuses before any process starts, and where it puts the stages."""

import pytest
import torch
from support.reference import make_trainer
from support.staged import QUIETER, Staged
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from builtin_plugins.rpc_sequential.pipe import Pipe
from builtin_plugins.rpc_sequential.strategy import RPCSequentialStrategy
from core import Trainer
from core.errors import InterlockError, InvalidArgument

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

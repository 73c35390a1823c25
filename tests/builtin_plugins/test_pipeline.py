"""How a sequential is cut and stood in for, and what the pipeline strategy refuses before any process starts."""

import copy
import time
from itertools import combinations, pairwise

import pytest
import torch
from support.reference import make_trainer
from support.staged import QUIETER, Staged
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from builtin_plugins.pipeline.averaging import clip_factor
from builtin_plugins.pipeline.balance import check_balance, infer, split_costs
from builtin_plugins.pipeline.layers import StandIns, cut, find_sequential, layer_tensors
from builtin_plugins.pipeline.report import glimpse
from builtin_plugins.pipeline.schedule import equal_parts
from builtin_plugins.pipeline.settings import Cutting
from builtin_plugins.pipeline.state import load_module
from builtin_plugins.pipeline.step import Entrance, _commit, _Loss
from builtin_plugins.pipeline.strategy import PipelineStrategy
from core import Trainer
from core.errors import CheckpointError, InterlockError, InvalidArgument, InvalidCombination, WrongType

CPU = torch.device("cpu")
DATA = DataLoader(TensorDataset(torch.ones(8, 6), torch.ones(8, 2)), 8)


class Slow(nn.Module):
    """Takes its time, and has no parameters."""

    def forward(self, value):
        time.sleep(0.02)
        return value


def fit(module, devices=2, **options):
    """Begin to train; whatever is refused before processes start is raised here."""
    trainer = Trainer(accelerator="cpu", strategy=PipelineStrategy(**options), devices=devices, max_epochs=1, **QUIETER)
    try:
        trainer.fit(module, DATA)
    finally:
        trainer.end_run()


# ---------------------------------------------------------------------- balance


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("costs", [[1, 1, 1, 9], [5, 1, 1, 1, 5], [3, 1, 4, 1, 5, 9, 2, 6], [0, 0, 0]])
def test_split_is_the_best_there_is(costs, parts):
    """No other cut into as many parts has a cheaper dearest part."""
    counts = split_costs(costs, parts)
    assert len(counts) == parts
    assert sum(counts) == len(costs)
    assert min(counts) > 0

    def dearest(bounds):
        return max(sum(costs[a:b]) for a, b in pairwise(bounds))

    every = [dearest([0, *inner, len(costs)]) for inner in combinations(range(1, len(costs)), parts - 1)]
    ends = [sum(counts[: n + 1]) for n in range(parts)]
    assert dearest([0, *ends]) == min(every)


def test_balance_by_parameters():
    """Stages get layers of about as many parameters."""
    layers = nn.Sequential(nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 10), nn.Linear(10, 10), nn.Linear(10, 2))
    assert infer("parameters", 2, layers, None, CPU) == (1, 4)


def test_balance_by_time_leaves_no_trace():
    """A slow layer without parameters gets a stage of its own, and measuring changes neither layers nor randomness."""
    layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), Slow())
    before = {name: value.clone() for name, value in layers.state_dict().items()}
    state = torch.get_rng_state()
    assert infer("time", 2, layers, torch.ones(3, 4), CPU) == (3, 1)
    assert infer("time", 2, copy.deepcopy(layers).double(), torch.ones(3, 4), CPU) == (3, 1)
    assert all(torch.equal(value, before[name]) for name, value in layers.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in layers.parameters())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"balance": [2, 0, 5]}, "must give every stage at least one layer"),
        ({"balance": [3, -1]}, "must give every stage at least one layer"),
        ({"balance": []}, "must give every stage at least one layer"),
        ({"balance": "size"}, "balance 'size' must be 'parameters', 'time', or a list"),
        ({"balance": [3, 4], "stages": 3}, "has 2 stages, stages=3"),
        ({"stages": 0}, "stages"),
        ({"micro_batches": 0}, "micro_batches"),
        ({"schedule": "2f2b"}, "schedule"),
    ],
)
def test_refused_at_construction(options, said):
    """What cannot hold whatever the module is, is refused where it is written."""
    with pytest.raises(InvalidArgument, match=said):
        PipelineStrategy(**options)


@pytest.mark.parametrize("balance", [3, [1.5, 2], None, [True, 2]])
def test_balance_of_a_wrong_type(balance):
    """A balance that is no list of whole numbers is refused with what was given."""
    with pytest.raises(WrongType, match="balance must be"):
        check_balance(balance)


@pytest.mark.parametrize(
    ("options", "devices", "said"),
    [
        ({"balance": [3, 3]}, 2, r"balance \[3, 3\] is for 6 layers, but the sequential has 7"),
        ({"balance": [3, 4]}, 3, "3 devices do not make whole pipelines of 2 stages"),
        ({}, 8, "7 layers cannot be cut into 8 stages"),
        ({"balance": "time"}, 2, "example_input_array"),
    ],
)
def test_refused_before_any_process(options, devices, said):
    """What does not fit this module or this number of devices is refused at once, in the calling process."""
    with pytest.raises(InvalidArgument, match=said):
        fit(Staged(), devices, **options)


def test_plan_shows_the_options():
    """The plan of a configured instance names its stages and balance."""
    trainer = make_trainer(strategy=PipelineStrategy(balance=[3, 4]), devices=4)
    assert "balance=(3, 4)" in str(trainer.plan)
    assert "schedule='1f1b'" in str(trainer.plan)
    assert Cutting(None, [3, 4], 8).stages(4) == 2


# ---------------------------------------------------------------------- layers


def test_stand_ins_keep_shapes_and_identity():
    """A layer that lives elsewhere keeps its parameters' shapes and objects, takes no memory, and comes back whole."""
    layers = nn.Sequential(nn.Linear(30, 30), nn.BatchNorm1d(30))
    before = {name: value.clone() for name, value in layers.state_dict().items()}
    parameters = list(layers.parameters())
    stand_ins = StandIns(layers, "rank 1")
    assert [p.shape for p in layers.parameters()] == [p.shape for p in parameters]
    assert parameters[0].untyped_storage().nbytes() == 4
    with pytest.raises(InterlockError, match="lives on rank 1"):
        layers(torch.ones(2, 30))
    stand_ins.fill(before)
    assert all(here is there for here, there in zip(layers.parameters(), parameters, strict=True))
    assert all(torch.equal(value, before[name]) for name, value in layers.state_dict().items())
    assert layers(torch.ones(2, 30)).shape == (2, 30)


def test_cut_keeps_the_names():
    """Stages hold the same layers under the names they have in the whole."""
    sequential = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    first, second = cut(sequential, [2, 1])
    assert list(first.state_dict()) == ["0.weight", "0.bias"]
    assert list(second.state_dict()) == ["2.weight", "2.bias"]
    assert second[0] is sequential[2]


def test_shared_layer_is_refused():
    """A layer that two stages would share can live in one process only."""
    layer = nn.Linear(2, 2)
    with pytest.raises(InvalidArgument, match="share a tensor"):
        cut(nn.Sequential(layer, nn.Tanh(), layer), [2, 1])
    assert len(cut(nn.Sequential(layer, nn.Tanh(), layer), [3])) == 1


def test_lazy_layer_is_refused():
    """A layer without shapes yet cannot be cut."""
    with pytest.raises(InvalidArgument, match="has no shape yet"):
        layer_tensors(nn.Sequential(nn.LazyLinear(3)))


def test_sequential_with_its_own_forward_is_refused():
    """Layers that are more than a sequence are not run as one."""

    class Skipping(nn.Sequential):
        def forward(self, value):
            return value + super().forward(value)

    with pytest.raises(InvalidArgument, match="has a forward of its own"):
        find_sequential(Skipping(nn.Linear(2, 2)))


def test_parameters_outside_are_refused():
    """A trained parameter in no layer would belong to no stage; a frozen one may stay."""
    module = Staged()
    module.scale = nn.Parameter(torch.ones(1))
    with pytest.raises(InvalidArgument, match="scale is trained, but in no layer"):
        fit(module)


def test_state_has_to_fit():
    """Missing and surplus names are told when weights are loaded, stand-ins' names included."""
    module = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match="lacks bias; it has too much: extra"):
        load_module(module, {"weight": torch.ones(2, 2), "extra": torch.ones(1)}, set())
    with pytest.raises(CheckpointError, match="lacks other"):
        load_module(module, dict(module.state_dict()), {"other"})


# ---------------------------------------------------------------------- steps


@pytest.mark.parametrize(("size", "wanted", "parts"), [(8, 4, 4), (10, 4, 2), (7, 4, 1), (6, 4, 3), (3, 8, 3)])
def test_equal_parts(size, wanted, parts):
    """Micro-batches are of equal size, so a batch that cannot be cut as wished is cut into fewer."""
    assert equal_parts(size, wanted) == parts


def test_loss_commits_scaled_gradients():
    """The gradients of a schedule come with the backward of the loss it returned, scaled by what divides the loss."""
    parameter = nn.Parameter(torch.ones(2))
    for _ in range(2):
        gradient = torch.tensor([2.0, 4.0])
        anchor = torch.zeros((), requires_grad=True)
        loss = _Loss.apply(anchor, torch.tensor(5.0), lambda scale, g=gradient: _commit([parameter], [g], scale))
        assert loss.item() == 5.0
        (loss / 4).backward()
    assert parameter.grad.tolist() == [1.0, 2.0]


def test_entrance_outside_a_step():
    """Calling the sequential outside a step says where it can be called."""
    with pytest.raises(InterlockError, match="in training_step or an evaluation step only"):
        Entrance()(torch.ones(1))


def test_glimpse_tells_batches_apart():
    """Two batches look the same only where their tensors are the same."""
    batch = {"x": torch.arange(100.0), "y": [torch.tensor([float("nan")]), "name"]}
    same = {"x": torch.arange(100.0), "y": [torch.tensor([float("nan")]), "other"]}
    assert glimpse(batch) == glimpse(same)
    assert glimpse(batch) != glimpse({**batch, "x": torch.arange(100.0) + 1})


@pytest.mark.parametrize(("square", "factor"), [(4.0, 0.5), (0.25, 1.0), (float("inf"), 0.0)])
def test_clip_factor(square, factor):
    """Gradients are scaled down to the norm, never up."""
    assert clip_factor(square, 1.0) == pytest.approx(factor, abs=1e-6)


# ---------------------------------------------------------------------- declaration


def test_optimizer_with_closure():
    """LBFGS is refused: it would evaluate the loss on parts of the model."""

    class Closed(Staged):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters())

    with pytest.raises(InvalidCombination, match=r"optimizer\.closure"):
        fit(Closed(), devices=1)

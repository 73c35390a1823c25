"""The layer "single process, multiple devices": modules of every kind, and devices with memories of their own."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from core.data.chunks import cut_batch, join_outputs
from core.parallel.replicas import ReplicatedStep, devices
from core.parallel.replicas.copies import copy_module
from core.parallel.replicas.devices import DeviceReplicas


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x.unsqueeze(1))[0].square().mean()


class Tied(nn.Module):
    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4, sparse=sparse)
        self.head = nn.Linear(4, 7, bias=False)
        if not sparse:
            self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding((x[:, 0].abs() * 3).long() % 7)).square().mean()


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        x = x.unsqueeze(1).repeat(1, 3, 1)
        return self.attention(x, x, x)[0].square().mean()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = weight_norm(nn.Linear(4, 3))
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(3))])

    def forward(self, x):
        decay = sum(parameter.square().sum() for parameter in self.layer.parameters())
        return (self.frozen(self.layer(x)) * self.scales[0]).square().mean() + 0.1 * decay


@pytest.fixture
def step():
    """Return a function that makes a replicated step on the host, and end its threads afterwards."""
    made = []

    def make(module, count=3):
        made.append(ReplicatedStep(module, [torch.device("cpu")] * count, cut_batch, join_outputs))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("kind", [Recurrent, Tied, partial(Tied, True), Attending, Normed])
def test_gradients_are_those_of_the_whole_batch(step, kind):
    """Recurrent, tied, sparse, attending and parametrized modules get the gradients of one pass, the unused none."""
    torch.manual_seed(0)
    module, batch = kind().double(), torch.randn(9, 4, dtype=torch.float64)
    module(batch).backward()
    expected = {name: parameter.grad for name, parameter in module.named_parameters()}
    module.zero_grad()
    loss = step(module)(batch)
    loss.backward()
    for name, parameter in module.named_parameters():
        if expected[name] is None:
            assert parameter.grad is None
        else:
            assert torch.allclose(parameter.grad.to_dense(), expected[name].to_dense(), atol=1e-13)


def test_gradients_add_up_over_steps_and_bear_a_scaled_loss(step):
    """Accumulation and loss scaling work on the joined loss as on any other."""
    module, batch = Recurrent().double(), torch.randn(8, 4, dtype=torch.float64)
    module(batch).backward()
    expected = {name: 8 * parameter.grad for name, parameter in module.named_parameters()}
    module.zero_grad()
    replicated = step(module, 2)
    for _ in range(2):
        loss = replicated(batch)
        loss.register_hook(lambda start: start * 4)
        loss.backward()
    for name, parameter in module.named_parameters():
        assert torch.allclose(parameter.grad, expected[name], atol=1e-12)


def test_buffers_of_the_first_replica_count():
    """What the first copy writes into a buffer is the module's; what others write is forgotten."""
    module = nn.BatchNorm1d(2)
    first = copy_module(module, with_gradients=True, own_buffers=False)
    other = copy_module(module, with_gradients=True, own_buffers=True)
    other.module(torch.randn(4, 2))
    assert module.running_mean.equal(torch.zeros(2))
    first.module(torch.randn(4, 2))
    assert not module.running_mean.equal(torch.zeros(2))
    assert module.num_batches_tracked == 1


def test_copies_share_the_parameters_memory():
    """A step of the optimizer on the module is seen by every copy."""
    module = nn.Linear(2, 2)
    copy = copy_module(module, with_gradients=True, own_buffers=False)
    with torch.no_grad():
        module.weight.fill_(3.0)
    assert copy.module.weight.equal(module.weight)
    assert copy.module.weight is not module.weight


def test_evaluation_in_replicas_needs_no_graph(step):
    """Without gradients outputs are joined as they are, and the module's own parameters are used."""
    module = Recurrent()
    with torch.no_grad():
        loss = step(module)(torch.randn(6, 4))
    assert not loss.requires_grad


def test_devices_of_their_own_use_the_machinery_of_torch(monkeypatch):
    """On devices with memories of their own, torch's replicate and parallel_apply are called with one of each kind.

    The two need GPUs: here they are replaced by what they mean, and the rest is genuine.
    """
    module, batch = Recurrent().double(), torch.randn(6, 4, dtype=torch.float64)
    module(batch).backward()
    expected = module.lstm.weight_ih_l0.grad.clone()
    module.zero_grad()
    calls = []

    def replicate(network, on, detach=False):
        calls.append((len(on), detach))
        return [network for _ in on]

    def parallel_apply(modules, inputs, devices):
        assert len(modules) == len(inputs) == len(devices)
        return [module(*given) for module, given in zip(modules, inputs, strict=True)]

    monkeypatch.setattr(devices, "replicate", replicate)
    monkeypatch.setattr(devices, "parallel_apply", parallel_apply)
    replicas = DeviceReplicas([torch.device("cpu")] * 2)
    outcomes = replicas.run(module, cut_batch(batch, 2), ())
    replicas.joined_loss([outcome.outputs for outcome in outcomes], [3, 3], module).backward()
    assert calls == [(2, False)]
    assert torch.allclose(module.lstm.weight_ih_l0.grad, expected, atol=1e-13)

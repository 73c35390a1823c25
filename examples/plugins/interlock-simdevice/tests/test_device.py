"""The device itself: an ordinary torch device, held against the CPU."""

from __future__ import annotations

import copy
import gc
import io
import pickle

import pytest
import torch
from interlock_simdevice import collectives, device
from interlock_simdevice.memory import memory
from torch import nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def registered():
    """The device is known, without a budget."""
    device.register()
    memory.set_limit(None)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, bias=False),
        nn.BatchNorm2d(3),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(75, 4),
        nn.LayerNorm(4),
    )


def test_a_tensor_is_on_the_device_and_its_elements_are_right():
    """Factories, arithmetic, indexing and views give on the device what they give on the host."""
    one = torch.arange(12.0, device="sim").reshape(3, 4)
    assert one.device.type == "sim"
    assert one.is_sim
    plain = torch.arange(12.0).reshape(3, 4)
    for function in (lambda t: t.T @ t, lambda t: t[1:, ::2] + 1, lambda t: t[t > 4], lambda t: t.sum(0).softmax(-1)):
        assert torch.equal(function(one).cpu(), function(plain))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.float64, torch.bfloat16])
def test_numbers_keep_their_place(dtype):
    """A Python number beside a tensor leaves the result the type that it has on the host, also for single elements."""
    functions = [
        lambda t: t + 0.1,
        lambda t: 2 - t,
        lambda t: t**2,
        lambda t: torch.where(t > 1, t, 0.5),
        lambda t: t / 3,
    ]
    functions += [lambda t: t & -2] if dtype == torch.int32 else []
    for shape in ((3,), ()):
        for function in functions:
            mine, plain = (function(torch.full(shape, 3, dtype=dtype, device=place)) for place in ("sim", "cpu"))
            assert mine.dtype == plain.dtype
            assert torch.equal(mine.cpu(), plain)


def test_views_share_memory():
    """Writing through a view changes its base, and the base the view."""
    base = torch.zeros(2, 3, device="sim")
    view = base.t()[1:]
    view += 5
    base[0, 2] = 7
    assert base.tolist() == [[0, 5, 7], [0, 5, 5]]
    assert view.tolist() == [[5, 5], [7, 5]]


@pytest.mark.parametrize("way", ["out=", "resize_", "transpose_", "set data", "conjugate"])
def test_changes_in_place_are_followed(way):
    """Operations that resize, turn or replace a tensor in place leave it right."""
    tensor, plain = torch.ones(2, 2, device="sim"), torch.ones(2, 2)
    for each, place in ((tensor, "sim"), (plain, "cpu")):
        each[0, 1] = 3
        if way == "out=":
            each.set_(torch.mm(each, each, out=torch.empty(0, device=place)))
        elif way == "resize_":
            each.resize_(1, 4)
        elif way == "transpose_":
            each.t_()
        elif way == "set data":
            each.data = torch.full((5,), 2.0, device=place)
        else:
            each.set_((torch.full((2,), 1 + 2j, device=place).conj() * 1).real)
    assert torch.equal(tensor.cpu(), plain)


def test_tensors_on_two_devices_are_refused():
    """Host and device do not mix, but for numbers and indices, as on a GPU; in backward too."""
    on_device = torch.ones(3, 3, device="sim")
    assert (on_device * torch.tensor(2.0)).sum().item() == 18
    assert on_device[torch.tensor([0, 2])].shape == (2, 3)
    with pytest.raises(RuntimeError, match="two devices"):
        on_device @ torch.ones(3, 3)
    with pytest.raises(TypeError, match="host memory"):
        on_device.numpy()


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adagrad"])
def test_training_equals_the_cpu(name):
    """Steps forward, backward and of the optimizer give the same numbers."""
    images, labels = torch.randn(6, 1, 5, 5), torch.tensor([0, 1, 2, 3, 0, 1])
    trained = []
    for place in ("cpu", "sim"):
        net = network().to(place)
        optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images.to(place)), labels.to(place)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
        trained.append([value.cpu() for value in net.state_dict().values()])
    for mine, expected in zip(*trained, strict=True):
        torch.testing.assert_close(mine, expected)  # torch splits some operations up where the CPU has one kernel


def test_activation_checkpointing_works():
    """Recomputing the forward inside backward gives the same gradients."""
    net = network().eval().to("sim")
    images = torch.randn(2, 1, 5, 5, device="sim")
    net(images).sum().backward()
    plain = [p.grad.cpu() for p in net.parameters()]
    net.zero_grad()
    checkpoint(net, images, use_reentrant=False).sum().backward()
    for mine, expected in zip((p.grad.cpu() for p in net.parameters()), plain, strict=True):
        torch.testing.assert_close(mine, expected)


def test_modules_are_copied_and_saved():
    """Deep copies, pickles and torch's files keep module and device."""
    net = network().to("sim")
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    for state in (copy.deepcopy(net).state_dict(), pickle.loads(pickle.dumps(net)).state_dict(), torch.load(file)):
        for name, value in net.state_dict().items():
            assert state[name].device.type == "sim"
            assert torch.equal(state[name].cpu(), value.cpu())


def test_memory_is_counted_and_given_back():
    """What lives on the device is counted by the storage, and given back with its last tensor."""
    gc.collect()
    before = torch.sim.memory_allocated()
    tensor = torch.zeros(1024, device="sim")
    view = tensor[:10]
    assert torch.sim.memory_allocated() == before + 4096
    del tensor
    assert torch.sim.memory_allocated() == before + 4096
    del view
    assert torch.sim.memory_allocated() == before


def test_a_budget_is_kept():
    """What goes beyond the budget raises the error that a GPU raises, and leaves room for what fits."""
    gc.collect()
    memory.set_limit(memory.used + 4096)
    with pytest.raises(torch.OutOfMemoryError, match="sim out of memory"):
        torch.zeros(2000, device="sim")
    assert torch.zeros(1000, device="sim").sum().item() == 0


def test_torch_asks_it_for_no_streams():
    """Code that synchronises or pins memory where there is an accelerator leaves this one alone."""
    assert not torch.accelerator.is_available()
    loader = torch.utils.data.DataLoader(torch.zeros(2, 1), pin_memory=False)
    assert next(iter(loader)).to("sim").device.type == "sim"


def test_registering_twice_is_harmless():
    """A second run in one process finds the device as it is."""
    device.register()
    collectives.register()
    assert torch._C._get_privateuse1_backend_name() == "sim"

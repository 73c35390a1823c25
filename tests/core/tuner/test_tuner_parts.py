"""The parts of the searches: what is remembered, how full memory shows, which devices can be used."""

import collections
import errno

import pytest
import torch
from support.nets import quiet_trainer
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from core.errors import InterlockError, InvalidArgument
from core.tuner import find_usable_cuda_devices
from core.tuner.memory import is_out_of_memory
from core.tuner.remember import Remembered


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("seen", torch.zeros(1))
        self.notes = {"a": [1, {"b": {2}}], "queue": collections.deque([3])}
        self.drawn = torch.Generator().manual_seed(1)
        self.scale, self.inner = torch.full((2,), 5.0), nn.Linear(1, 1)


class Other(Part):
    pass


def change(module):
    """Change everything that there is to change."""
    module.weight.data.fill_(7)
    module.weight.grad = torch.ones(2)
    module.weight.requires_grad_(False)
    module.seen += 1
    module.scale.mul_(2)
    module.notes["a"][1]["b"].add(9)
    module.notes["a"].append(4)
    module.notes["queue"].append(5)
    module.notes["new"] = 1
    module.added, module.name = 3, "x"
    torch.rand(1, generator=module.drawn)
    module.inner.eval()
    module.inner.register_forward_hook(lambda *_: None)
    module.inner.weight = nn.Parameter(torch.zeros(1, 1))
    module.extra = nn.Linear(2, 2)
    module.__class__ = Other


def test_module_is_as_before():
    """Weights, flags, attributes, containers, generators, hooks and the class come back, in the same objects."""
    module = Part()
    weight, queue, inner = module.weight, module.notes["queue"], module.inner.weight
    state = module.drawn.get_state()
    memory = Remembered()
    memory.value(module)
    for _ in range(2):
        change(module)
        memory.restore()
        assert type(module) is Part
        assert module.weight is weight
        assert weight.tolist() == [1, 1]
        assert (weight.grad, weight.requires_grad) == (None, True)
        assert (module.seen.tolist(), module.scale.tolist()) == ([0], [5, 5])
        assert module.notes == {"a": [1, {"b": {2}}], "queue": collections.deque([3])}
        assert module.notes["queue"] is queue
        assert not hasattr(module, "added")
        assert not hasattr(module, "extra")
        assert torch.equal(module.drawn.get_state(), state)
        assert (module.inner.training, len(module.inner._forward_hooks)) == (True, 0)
        assert module.inner.weight is inner


def test_gradients_keep_their_values():
    """A gradient that was there is there again with its values."""
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([1.0, 2.0])
    memory = Remembered()
    memory.value(weight)
    weight.grad.add_(5)
    weight.grad = None
    memory.restore()
    assert weight.grad.tolist() == [1, 2]


def test_another_number_format_is_undone():
    """A module that was brought to another number format is in its own again."""
    module = nn.Linear(2, 2)
    before = module.weight.clone()
    memory = Remembered()
    memory.value(module)
    module.half()
    memory.restore()
    assert torch.equal(module.weight, before)


def test_optimizer_with_state():
    """An optimizer in the middle of training has its state, its rates and its step counts back."""
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight], 0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def step():
        weight.grad = torch.ones(2)
        optimizer.step()
        scheduler.step()

    step()
    memory = Remembered()
    memory.value(scheduler)
    step()
    after = weight.tolist(), optimizer.state_dict()["state"][0]["exp_avg"].tolist(), scheduler.get_last_lr()
    step()
    memory.restore()
    assert (optimizer.param_groups[0]["lr"], scheduler.last_epoch) == (0.05, 1)
    step()
    again = weight.tolist(), optimizer.state_dict()["state"][0]["exp_avg"].tolist(), scheduler.get_last_lr()
    assert again == after


def test_loader_and_what_is_told_the_epoch():
    """A loader, its sampler, their generator and a dataset's epoch come back."""
    data = TensorDataset(torch.arange(8))
    generator = torch.Generator().manual_seed(2)
    loader = DataLoader(data, 2, sampler=RandomSampler(data, generator=generator))
    memory = Remembered()
    memory.loader(loader)
    first = [batch.tolist() for (batch,) in loader]
    data.epoch = 4
    memory.restore()
    assert not hasattr(data, "epoch")
    assert [batch.tolist() for (batch,) in loader] == first


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (ValueError("out of memory"), False),
    ],
    ids=str,
)
def test_how_full_memory_shows(error, full):
    """Running out of memory is told from everything else."""
    assert is_out_of_memory(error) is full


STUB = """
class device:
    def __init__(self, kind, index):
        assert kind == "cuda"
        self.index = index

class cuda:
    @staticmethod
    def device_count():
        return 4

class ones:
    def __init__(self, size, device):
        if device.index == 1:
            raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")
    def add_(self, value):
        return self
    def item(self):
        return 2.0
"""


@pytest.fixture
def four_gpus(tmp_path, monkeypatch):
    """Four devices, of which somebody else holds the second."""
    (tmp_path / "torch.py").write_text(STUB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize(("asked", "found"), [(1, [0]), (2, [0, 2]), (3, [0, 2, 3]), (-1, [0, 2, 3])])
def test_usable_devices(four_gpus, asked, found):
    """As many devices are named as asked, those left out on which no memory can be had; -1 asks for all."""
    assert find_usable_cuda_devices(asked) == found


def test_too_few_usable_devices(four_gpus):
    """Fewer than asked is an error that names those there are; more than the machine has is another."""
    with pytest.raises(InterlockError, match=r"4 CUDA devices are asked for, and only \[0, 2, 3\] of 4 can be used"):
        find_usable_cuda_devices(4)
    with pytest.raises(InvalidArgument, match="num_devices=5, but this machine shows 4"):
        find_usable_cuda_devices(5)


@pytest.mark.parametrize("asked", [0, -2, True, "2"])
def test_refused_counts(asked):
    """A count that is none is refused before anything is tried."""
    with pytest.raises(InvalidArgument):
        find_usable_cuda_devices(asked)


def test_process_that_fails(tmp_path, monkeypatch):
    """Where the process that tries devices fails, its last words are told."""
    (tmp_path / "torch.py").write_text("raise OSError('no driver')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(InterlockError, match="OSError: no driver"):
        find_usable_cuda_devices(1)


def test_a_search_names_no_profile(capsys):
    """A search is not among what the Trainer's profiler measures."""
    from support.hungry import Hungry

    from core.tuner import Tuner

    trainer = quiet_trainer(profiler="simple")
    Tuner(trainer).lr_find(Hungry(room=10**6), num_training=3, update_attr=False)
    assert "time of" not in capsys.readouterr().err

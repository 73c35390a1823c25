"""One call seeds everything, and ranks can have workers with numbers of their own."""

import random

import numpy as np
import pytest
import torch
from support.nets import Net, loader, quiet_trainer
from torch.utils.data import DataLoader, Dataset

from core import seed_everything
from core.data.sharding import with_worker_seed
from core.errors import InvalidArgument
from core.seed import sampler_seed, seeds_workers


@pytest.fixture(autouse=True)
def same_environment(monkeypatch):
    """Leave no seed behind in the environment."""
    for name in ("INTERLOCK_SEED", "INTERLOCK_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")


def drawn():
    return random.random(), float(np.random.rand()), torch.rand(1).item()


def test_everything_is_seeded():
    """After the same seed Python, NumPy and torch draw the same, a fit too; without a seed the last one holds."""
    assert seed_everything(42, workers=True, verbose=False) == 42
    first = drawn()
    assert seed_everything() == 42
    assert drawn() == first
    assert (sampler_seed(), seeds_workers()) == (42, False)
    weights = []
    for _ in range(2):
        seed_everything(7)
        net = Net()
        quiet_trainer().fit(net, loader(4, shuffle=True))
        weights.append(net.layer.weight.tolist())
    assert weights[0] == weights[1]


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "7", True])
def test_what_is_no_seed_is_refused(seed):
    """A seed outside NumPy's range or of another type is refused with the range."""
    with pytest.raises(InvalidArgument, match="must be a whole number from 0 to 4294967295"):
        seed_everything(seed)


class Drawing(Dataset):
    """Samples that are drawn where they are read."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor(drawn(), dtype=torch.float64)


def of_rank(rank):
    """Return what the workers of one rank draw after the same seed."""
    torch.manual_seed(5)
    return torch.cat(list(with_worker_seed(DataLoader(Drawing(), batch_size=2, num_workers=2), rank)))


@pytest.mark.processes
def test_workers_of_ranks_draw_numbers_of_their_own():
    """With one seed for all ranks, each worker of each rank draws other numbers, and the same in every program."""
    numbers = torch.stack([of_rank(0), of_rank(1)])
    assert len(numbers.unique()) == numbers.numel()
    assert torch.equal(of_rank(1), numbers[1])


def test_a_loader_that_seeds_its_workers_stays():
    """A worker_init_fn of the user's own is left alone, and so is a loader without workers."""
    own = DataLoader(Drawing(), num_workers=2, worker_init_fn=print)
    plain = DataLoader(Drawing())
    assert with_worker_seed(own, 1) is own
    assert with_worker_seed(plain, 1) is plain

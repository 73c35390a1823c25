"""Which samples each of several ranks reads."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from core.data.sharding import set_epoch, shard_loader
from core.errors import InvalidArgument
from core.hookspecs import Shard

SAMPLES = 23
DATA = TensorDataset(torch.arange(SAMPLES))


def of_rank(loader, rank, world=2, *, train=True, epoch=0, seed=0):
    """Return the samples of one rank in one epoch."""
    own = shard_loader(loader, Shard(rank, world), train=train, seed=seed, name="train_dataloaders")
    set_epoch(own, epoch)
    return [value for batch in own for value in torch.as_tensor(batch[0]).flatten().tolist()]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("loader", [DataLoader(DATA, 4, shuffle=True), DataLoader(DATA, None, shuffle=True)])
def test_training(loader, world):
    """Ranks read equally many samples and together all of them, in a new order each epoch from one basis."""
    orders = []
    for epoch in range(3):
        parts = [of_rank(loader, rank, world, epoch=epoch) for rank in range(world)]
        assert len({len(part) for part in parts}) == 1
        joined = sorted(value for part in parts for value in part)
        assert set(joined) == set(range(SAMPLES))
        assert len(joined) == -(-SAMPLES // world) * world
        orders.append(parts)
    assert orders[0] != orders[1] != orders[2]
    assert orders[1] == [of_rank(loader, rank, world, epoch=1) for rank in range(world)]


def test_training_in_order():
    """A loader that does not shuffle is read in order by every rank, in every epoch."""
    loader = DataLoader(DATA, 4)
    for epoch in range(2):
        assert of_rank(loader, 0, epoch=epoch) == list(range(0, SAMPLES, 2))


def test_seed():
    """The order follows from the seed, which is the same on all ranks."""
    loader = DataLoader(DATA, 4, shuffle=True)
    assert of_rank(loader, 0, seed=1) != of_rank(loader, 0, seed=2)
    assert set(of_rank(loader, 0, seed=1)) | set(of_rank(loader, 1, seed=1)) == set(range(SAMPLES))


@pytest.mark.parametrize("world", [2, 3, 24])
def test_evaluation(world):
    """In evaluation every sample is read once, whatever the number of ranks, also where one has none."""
    parts = [of_rank(DataLoader(DATA, 4), rank, world, train=False) for rank in range(world)]
    assert sorted(value for part in parts for value in part) == list(range(SAMPLES))


def test_evaluation_of_a_shuffling_loader():
    """In evaluation order does not count, so that a shuffling loader is read in order."""
    assert of_rank(DataLoader(DATA, 4, shuffle=True), 1, train=False) == list(range(1, SAMPLES, 2))


def own_samplers():
    """Return loaders with samplers of the user's own."""
    weights = [1.0] * SAMPLES

    class Backwards(SequentialSampler):
        def __iter__(self):
            return reversed(range(SAMPLES))

    class Buckets(BatchSampler):
        pass

    return {
        "WeightedRandomSampler": DataLoader(DATA, 4, sampler=WeightedRandomSampler(weights, SAMPLES)),
        "Backwards": DataLoader(DATA, 4, sampler=Backwards(DATA)),
        "Buckets": DataLoader(DATA, batch_sampler=Buckets(RandomSampler(DATA), 4, False)),
        "RandomSampler": DataLoader(DATA, 4, sampler=RandomSampler(DATA, replacement=True)),
    }


@pytest.mark.parametrize("name", own_samplers())
def test_own_sampler(name):
    """A sampler of the user's own is refused by name and argument, with the two ways out."""
    with pytest.raises(InvalidArgument) as caught:
        of_rank(own_samplers()[name], 0)
    assert f"train_dataloaders has a {name}" in str(caught.value)
    assert "DistributedSampler" in str(caught.value)
    assert "use_distributed_sampler=False" in str(caught.value)


def test_sharded_already():
    """A loader with a DistributedSampler is the user's to shard, and is told the epoch."""
    sampler = DistributedSampler(DATA, 2, 1, shuffle=True)
    first, second = (of_rank(DataLoader(DATA, 4, sampler=sampler), 0, epoch=epoch) for epoch in range(2))
    assert first != second
    in_batches = DataLoader(DATA, batch_sampler=BatchSampler(sampler, 4, False))
    assert of_rank(in_batches, 0, epoch=1) == second


class Hiding(DataLoader):
    """A loader whose constructor shows none of DataLoader's arguments."""

    def __init__(self, numbers):
        super().__init__(TensorDataset(numbers), batch_size=5, shuffle=True, drop_last=True)
        self.scale = 10

    def __iter__(self):
        for (batch,) in super().__iter__():
            yield (batch * self.scale,)


def test_loader_that_hides_its_arguments():
    """A loader class with a constructor of its own is sharded, and stays what it is; the original does not change."""
    loader = Hiding(torch.arange(SAMPLES))
    parts = [of_rank(loader, rank) for rank in range(2)]
    assert all(len(part) == 10 for part in parts)  # 12 samples in batches of five, the rest dropped
    assert not set(parts[0]) & set(parts[1])
    assert all(value % 10 == 0 for part in parts for value in part)
    assert isinstance(loader.sampler, RandomSampler)


class Told:
    """Notes the epochs that it is told."""

    def __init__(self, inner):
        self.inner, self.epochs = inner, []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)


def test_who_is_told_the_epoch():
    """Sampler, batch sampler and dataset are each told once which epoch begins."""
    sampler = Told(range(SAMPLES))
    batches = Told(BatchSampler(sampler, 4, False))
    data = TensorDataset(torch.arange(SAMPLES))
    data.epochs = []
    data.set_epoch = data.epochs.append
    set_epoch(DataLoader(data, batch_sampler=batches), 3)
    set_epoch(DataLoader(data, 4, sampler=sampler), 5)
    assert batches.epochs == [3]
    assert sampler.epochs == [5]
    assert data.epochs == [3, 5]

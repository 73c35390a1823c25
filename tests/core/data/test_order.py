"""Batches come in the order, and with the random numbers, of torch's own DataLoader."""

from __future__ import annotations

import pytest
import torch
from support.reference import make_trainer
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from core import Callback, Module

SIZE = 11
EPOCHS = 3


class Numbers(Dataset):
    """Numbers with noise, so that the draw of a sample shows in it."""

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return torch.tensor([float(index)]) + torch.rand(1) / 10


class Many(Numbers):
    """Gives several samples at once."""

    def __getitems__(self, indices):
        return [torch.tensor([float(index)]) for index in indices]


class Stream(IterableDataset):
    """Numbers one after another, with noise."""

    def __iter__(self):
        for index in range(SIZE):
            yield torch.tensor([float(index)]) + torch.rand(1) / 10


class Replaced(DataLoader):
    """A loader that iterates in its own way."""

    def __iter__(self):
        return (-batch for batch in super().__iter__())


def joined(rows):
    """Collate in another way than torch does."""
    return torch.cat([row[0] for row in rows])


TENSORS = TensorDataset(torch.arange(float(SIZE))[:, None])
MAKE = {
    "in_order": lambda: DataLoader(Numbers(), 4),
    "shuffled": lambda: DataLoader(Numbers(), 4, shuffle=True),
    "generator": lambda: DataLoader(Numbers(), 4, shuffle=True, generator=torch.Generator().manual_seed(8)),
    "sampler_generator": lambda: DataLoader(
        Numbers(), 4, sampler=RandomSampler(Numbers(), generator=torch.Generator().manual_seed(8))
    ),
    "drop_last": lambda: DataLoader(Numbers(), 4, shuffle=True, drop_last=True),
    "no_batches": lambda: DataLoader(Numbers(), batch_size=None, shuffle=True),
    "batch_sampler": lambda: DataLoader(Numbers(), batch_sampler=BatchSampler(RandomSampler(Numbers()), 3, False)),
    "several_at_once": lambda: DataLoader(Many(), 4, shuffle=True),
    "tensors": lambda: DataLoader(TENSORS, 4, shuffle=True),
    "tensors_one_by_one": lambda: DataLoader(TENSORS, batch_size=None, shuffle=True),
    "tensors_collated": lambda: DataLoader(
        TENSORS, 4, shuffle=True, collate_fn=lambda rows: torch.cat([r[0] for r in rows])
    ),
    "subset": lambda: DataLoader(Subset(Many(), [5, 3, 1, 8]), 3, shuffle=True),
    "subset_sampler": lambda: DataLoader(Numbers(), 4, sampler=SubsetRandomSampler([1, 5, 9, 2, 4])),
    "weighted": lambda: DataLoader(Numbers(), 4, sampler=WeightedRandomSampler([1.0] * SIZE, 9)),
    "with_replacement": lambda: DataLoader(Numbers(), 4, sampler=RandomSampler(Numbers(), True, 70)),
    "workers": lambda: DataLoader(Numbers(), 4, shuffle=True, num_workers=2),
    "stream": lambda: DataLoader(Stream(), 4),
    "own_iteration": lambda: Replaced(Numbers(), 4, shuffle=True),
    "list": lambda: [torch.ones(2), torch.zeros(2)],
}


class Keeps(Module):
    """Keeps its batches, and draws a random number at each step as dropout would."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.batches, self.draws = [], []

    def training_step(self, batch, batch_idx):
        self.batches.append(batch[0] if isinstance(batch, list | tuple) else batch)
        self.draws.append(torch.rand(()).item())
        return self.weight * 0

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Seed(Callback):
    """Seeds when set-up is over."""

    def on_train_start(self, trainer, module):
        torch.manual_seed(5)


@pytest.mark.parametrize("kind", MAKE)
def test_order_is_that_of_torch(kind):
    """Batches and the random numbers drawn between them are those of a plain loop over the loader, bit for bit."""
    module = Keeps()
    make_trainer(callbacks=Seed(), max_epochs=EPOCHS).fit(module, MAKE[kind]())
    loader, batches, draws = MAKE[kind](), [], []
    torch.manual_seed(5)
    for _ in range(EPOCHS):
        for batch in loader:
            batches.append(batch[0] if isinstance(batch, list | tuple) else batch)
            if kind != "stream":
                draws.append(torch.rand(()).item())
    assert len(module.batches) == len(batches) > 0
    if kind == "stream":  # a batch is read ahead, so that draws between batches come in another order
        assert [batch.round().tolist() for batch in module.batches] == [batch.round().tolist() for batch in batches]
    else:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(module.batches, batches, strict=True))
        assert module.draws == draws


@pytest.mark.parametrize("kind", ["shuffled", "tensors", "generator"])
def test_order_changes(kind):
    """A loader that shuffles gives each epoch another order."""
    module = Keeps()
    make_trainer(callbacks=Seed(), max_epochs=EPOCHS).fit(module, MAKE[kind]())
    per_epoch = len(module.batches) // EPOCHS
    orders = {
        tuple(torch.cat(module.batches[start : start + per_epoch]).flatten().floor().tolist())
        for start in range(0, len(module.batches), per_epoch)
    }
    assert len(orders) == EPOCHS
    assert {tuple(sorted(order)) for order in orders} == {tuple(map(float, range(SIZE)))}

"""A run that is resumed inside an epoch of several loaders goes on with the samples of the unbroken run."""

import pytest
import torch
from support.nets import quiet_trainer
from torch import nn
from torch.utils.data import DataLoader

from core import Callback, Module
from core.data.combined import CombinedLoader


def shuffled(count, **settings):
    return DataLoader(torch.arange(float(count)).unsqueeze(1), batch_size=2, shuffle=True, **settings)


class Sees(Module):
    """Notes the samples of each batch, and draws random numbers of its own in between."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(1, 4), []

    def training_step(self, batch, batch_idx):
        parts = batch if isinstance(batch, dict) else {"one": batch}
        self.seen.append({name: part.flatten().tolist() for name, part in parts.items()})
        return sum(nn.functional.dropout(self.layer(part / 12), 0.5).pow(2).mean() for part in parts.values())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class SaveAt(Callback):
    def __init__(self, path, step):
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


LOADERS = {
    "sequential": lambda: CombinedLoader([shuffled(12), shuffled(8)], "sequential"),
    "cycled": lambda: {"long": shuffled(12), "short": shuffled(4)},
    "cycled, one with a generator": lambda: {
        "long": shuffled(12),
        "short": shuffled(4, generator=torch.Generator().manual_seed(3)),
    },
    "side by side": lambda: CombinedLoader({"a": shuffled(12), "b": shuffled(8)}, "min_size"),
}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("back", [1, 3])
def test_orders_follow_from_the_start_of_the_epoch(tmp_path, name, back):
    """A loader that begins in the middle of an epoch, or again, has the same order when that epoch is resumed."""
    found = []
    per_epoch = {"sequential": 10, "side by side": 4}.get(name, 6)
    step = 2 * per_epoch - back
    for resume in (False, True):
        torch.manual_seed(2 if resume else 1)
        module = Sees()
        trainer = quiet_trainer(max_epochs=3, callbacks=[] if resume else [SaveAt(tmp_path / "inside.ckpt", step)])
        trainer.fit(module, LOADERS[name](), ckpt_path=tmp_path / "inside.ckpt" if resume else None)
        found.append((module.seen, module.layer.weight.detach().clone()))
    (whole, weight), (rest, resumed) = found
    assert rest == whole[step:]
    assert torch.equal(weight, resumed)


def test_beginning_again_leaves_the_random_numbers_alone():
    """What training draws does not depend on how often a shorter loader begins again."""
    drawn = []
    for short in (4, 12):
        torch.manual_seed(1)
        for _ in CombinedLoader({"long": shuffled(12), "short": DataLoader(torch.ones(short, 1), 2)}, "max_size_cycle"):
            pass
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)

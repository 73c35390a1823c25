"""Run one module under our Trainer and under Lightning's, and compare what it comes to."""

import warnings

import pytest
import torch
from support.nets import quiet_trainer
from torch import nn
from torch.utils.data import DataLoader

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
QUIET = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")


def rows(count=8):
    return DataLoader(torch.arange(count * 4.0).view(count, 4) / 32, batch_size=2)


class Line(pl.LightningModule):
    """Fits nothing, and notes what a test wants to compare."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.notes = nn.Linear(4, 1), []

    def forward(self, batch):
        return self.layer(batch)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("val", self.layer(batch).pow(2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def compare(kind, folder, call=None, **settings):
    """Run under both Trainers and compare what it came to."""
    found = []
    common = {**dict.fromkeys(QUIET, False), "accelerator": "cpu", "max_epochs": 2, "default_root_dir": folder}
    for make in (quiet_trainer, pl.Trainer):
        trainer, module = make(**{**common, **settings}), kind()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = trainer.fit(module, rows(), rows(4)) if call is None else call(trainer, module)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        weights = [p.detach().clone() for p in module.parameters()]
        found.append((result, trainer.current_epoch, trainer.global_step, module.notes, metrics, weights))
    ours, theirs = found
    assert ours[:4] == theirs[:4]
    assert ours[4] == pytest.approx(theirs[4], rel=1e-5)
    torch.testing.assert_close(ours[5], theirs[5], rtol=0, atol=0)

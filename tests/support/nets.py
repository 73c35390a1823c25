"""Small modules and a quiet Trainer for tests."""

import torch
from torch.utils.data import DataLoader

from core import Module, Trainer

QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def quiet_trainer(**settings):
    """Return a Trainer that writes and shows nothing, for one epoch unless told otherwise."""
    return Trainer(**{**QUIET, "max_epochs": 1, **settings})


def loader(batches=4, size=2, width=4, **settings):
    """Return a loader of ``batches`` batches; sample i is filled with i."""
    samples = torch.arange(batches * size, dtype=torch.float32).unsqueeze(1).expand(-1, width).contiguous()
    return DataLoader(samples, batch_size=size, **settings)


class Net(Module):
    """A linear layer that notes the calls of its steps."""

    def __init__(self, width=4):
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)
        self.calls = []

    def forward(self, batch):
        return self.layer(batch)

    def training_step(self, batch, batch_idx):
        self.calls.append(("train", batch_idx))
        return self.layer(batch).pow(2).mean()

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.calls.append(("val", batch_idx))
        self.log("val_loss", self.layer(batch).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-4)

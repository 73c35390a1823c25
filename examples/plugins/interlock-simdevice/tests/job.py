"""Train on the simulated device and on the CPU, two ranks each, and write the weights; run as a script: job.py OUT"""

from __future__ import annotations

import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Module, Trainer


def data() -> TensorDataset:
    """Small random images with labels."""
    generator = torch.Generator().manual_seed(7)
    return TensorDataset(torch.randn(48, 1, 6, 6, generator=generator), torch.randint(0, 3, (48,), generator=generator))


class Classifier(Module):
    """A convolution, batch norm and two linear layers; what it logs is reduced over the ranks."""

    def __init__(self, misplaced: bool = False):
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64, 16),
            nn.GELU(),
            nn.Linear(16, 3),
        )
        self.misplaced = misplaced

    def training_step(self, batch, batch_idx):
        images, labels = batch
        if self.misplaced:
            images = images + torch.zeros(1, 1, 6, 6)  # made on the host, wherever the batch is
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


def train(accelerator: object, *, save: str = "", resume: str = "", module: Module | None = None, **settings: object):
    """Return the trained weights in host memory."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    usual = {"max_epochs": 2, "gradient_clip_val": 0.5, "accumulate_grad_batches": 2}
    trainer = Trainer(accelerator=accelerator, **quiet, **usual | settings)
    module = module or Classifier()
    trainer.fit(module, DataLoader(data(), batch_size=4), ckpt_path=resume or None)
    if save:
        trainer.save_checkpoint(save)
    return {name: value.cpu() for name, value in module.state_dict().items()}


if __name__ == "__main__":
    both = {name: train(name, strategy="ddp", devices=2) for name in ("sim", "cpu")}
    rank = os.environ.get("RANK", "0")  # not set in the process that started the others
    torch.save(both, f"{sys.argv[1]}.{rank}")

"""Train with two ranks in bf16-stochastic and write each rank's weights; run as a script: python job.py OUT"""

from __future__ import annotations

import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Module, Trainer


def data(samples: int = 64) -> TensorDataset:
    """A fixed regression problem."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(samples, 6, generator=generator)
    return TensorDataset(inputs, torch.sin(inputs @ torch.randn(6, 1, generator=generator)))


class Regression(Module):
    """Mean squared error with a small step, so that updates are below what bfloat16 can hold."""

    def __init__(self, make_optimizer=lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)):
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
        self.make_optimizer = make_optimizer

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return self.make_optimizer(self.net.parameters())


def train(precision: object, steps: int, module: Module | None = None, *, save: str = "", resume: str = "", **settings):
    """Return the trained module."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    usual = {"accelerator": "cpu", "strategy": "single_device", "gradient_clip_val": 5.0}
    trainer = Trainer(precision=precision, max_steps=steps, **quiet, **usual | settings)
    module = module or Regression()
    trainer.fit(module, DataLoader(data(), batch_size=16), ckpt_path=resume or None)
    if save:
        trainer.save_checkpoint(save)
    return module


if __name__ == "__main__":
    net = train("bf16-stochastic", 6, strategy="ddp", devices=2, accumulate_grad_batches=2).net
    rank = os.environ.get("RANK", "0")  # not set in the process that started the others
    torch.save(net.state_dict(), f"{sys.argv[1]}.{rank}")

"""Train a small regression with quantized gradients, once for each case; run as a script: python job.py OUT"""

from __future__ import annotations

import os
import sys

import torch
from interlock_quantddp import QuantizedDDP
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Module, Trainer

BATCH, LR, WORLD = 8, 0.05, 2


def data() -> TensorDataset:
    """A fixed regression problem."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(96, 12, generator=generator)
    return TensorDataset(inputs, torch.tanh(inputs @ torch.randn(12, 4, generator=generator)))


class Regression(Module):
    """Mean squared error; two optimizers, one for each layer, where asked for."""

    def __init__(self, several: bool = False):
        super().__init__()
        torch.manual_seed(3)
        self.net, self.several = nn.Sequential(nn.Linear(12, 60), nn.Tanh(), nn.Linear(60, 4)), several

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        parts = [self.net[0], self.net[2]] if self.several else [self.net]
        return [torch.optim.SGD(part.parameters(), lr=LR, momentum=0.9) for part in parts]


def train(strategy: object, steps: int, *, several: bool = False, save: str = "", resume: str = "", **settings: object):
    """Return this rank's weights and the loss over all data."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(accelerator="cpu", strategy=strategy, devices=WORLD, max_steps=steps, **quiet, **settings)
    module = Regression(several)
    trainer.fit(module, DataLoader(data(), batch_size=BATCH), ckpt_path=resume or None)
    if save:
        trainer.save_checkpoint(save)
    inputs, targets = data().tensors
    with torch.no_grad():
        loss = nn.functional.mse_loss(module.net(inputs), targets)
    return {**{name: value.clone() for name, value in module.net.state_dict().items()}, "loss": loss}


def main(out: str) -> None:
    """Run every case; the children of the first serve them all."""
    eight, four = QuantizedDDP(), QuantizedDDP(bits=4, block=32)
    train(QuantizedDDP(bits=4), 7, save=f"{out}.half")
    results = {
        "ddp": train("ddp", 60),
        "eight": train(eight, 60),
        "four": train(four, 60),
        "windows": train("ddp_quantized", 5, accumulate_grad_batches=2, gradient_clip_val=0.5, several=True),
        "ddp windows": train("ddp", 5, accumulate_grad_batches=2, gradient_clip_val=0.5, several=True),
        "unbroken": train(QuantizedDDP(bits=4), 14),
        "resumed": train(QuantizedDDP(bits=4), 14, resume=f"{out}.half"),
        "sent": {"eight": eight.bytes_sent, "four": four.bytes_sent},
    }
    rank = os.environ.get("RANK", "0")  # not set in the process that started the others
    torch.save(results, f"{out}.{rank}")


if __name__ == "__main__":
    main(sys.argv[1])

"""Train a small regression with local SGD, once for each case, and write every rank's weights; run as a script.

python job.py OUT
"""

from __future__ import annotations

import os
import sys

import torch
from interlock_localsgd import LocalSGD
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Callback, Module, Trainer

BATCH, LR, WORLD = 8, 0.1, 2
OVERFLOW = 2
PROMPT = {"start_timeout": 40.0, "timeout": 40.0}
"""A test that hangs helps nobody."""


def data() -> TensorDataset:
    """A fixed regression problem: 6 batches for each of two ranks."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(96, 5, generator=generator)
    return TensorDataset(inputs, inputs @ torch.randn(5, 2, generator=generator))


def network() -> nn.Sequential:
    """The same weights in every process."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))


class Regression(Module):
    """Mean squared error, plain SGD halved each epoch; one optimizer for all parameters, or one for each layer."""

    def __init__(self, several: bool = False):
        super().__init__()
        self.net, self.several = network(), several

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        if self.several:
            return [torch.optim.Adam(layer.parameters(), lr=LR) for layer in (self.net[0], self.net[2])]
        optimizer = torch.optim.SGD(self.net.parameters(), lr=LR)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


def train(
    strategy: object,
    steps: int,
    *,
    module: Module | None = None,
    save: str = "",
    resume: str = "",
    **settings: object,
):
    """Return this rank's weights after ``steps`` steps."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(accelerator="cpu", strategy=strategy, devices=WORLD, max_steps=steps, **quiet, **settings)
    module = module or Regression()
    trainer.fit(module, DataLoader(data(), batch_size=BATCH), ckpt_path=resume or None)
    if save:
        trainer.save_checkpoint(save)
    return {name: value.clone() for name, value in module.net.state_dict().items()}


class Overflowing(Regression):
    """Its loss is infinite in one batch, on the last rank only."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss * float("inf") if batch_idx == OVERFLOW and self.global_rank == WORLD - 1 else loss


class Skips(Callback):
    """Notes how many steps were skipped so far, after each."""

    def __init__(self):
        self.counts = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.counts.append(trainer.skipped_steps)


def overflow() -> dict:
    """Train in float16 with a scaled loss, and return this rank's weights and what it skipped."""
    skips = Skips()
    strategy = LocalSGD(sync_every=50, **PROMPT)
    weights = train(strategy, 6, module=Overflowing(), precision="16-mixed", callbacks=skips)
    return {"weights": weights, "counts": skips.counts}


def main(out: str) -> None:
    """Run every case; the children of the first serve them all."""
    train(LocalSGD(sync_every=5, **PROMPT), 6, save=f"{out}.half")
    results = {
        "clipped": train(LocalSGD(sync_every=3, **PROMPT), 4, gradient_clip_val=0.3),
        "windows": train(LocalSGD(sync_every=3, **PROMPT), 3, accumulate_grad_batches=2),
        "warm": train(LocalSGD(sync_every=4, warmup_steps=100, **PROMPT), 6),
        "neighbours": train(LocalSGD(group_size=2, **PROMPT), 6),
        "unbroken": train(LocalSGD(sync_every=5, **PROMPT), 12),
        "resumed": train(LocalSGD(sync_every=5, **PROMPT), 12, resume=f"{out}.half"),
        "met": train(LocalSGD(sync_every=50, **PROMPT), 5, module=Regression(several=True), save=f"{out}.full"),
        "skipped": overflow(),
    }
    rank = os.environ.get("RANK", "0")  # not set in the process that started the others
    torch.save(results, f"{out}.{rank}")


if __name__ == "__main__":
    main(sys.argv[1])

"""The training that the cluster tests start: writes each rank's losses, and rank 0's end, into a folder."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Module, Trainer, seed_everything


class Net(Module):
    """Notes its losses; may wait between steps, raise, or end its own process."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        where = Path(self.options.folder, f"losses-{self.global_rank}.txt")
        with open(where, "a") as file:
            file.write(f"{self.current_epoch} {batch_idx} {loss.item():.9g}\n")
        time.sleep(self.options.wait)
        if self.options.dies == self.global_rank and batch_idx == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.options.raises == self.global_rank and batch_idx == 2:
            raise ValueError("this rank has had enough")
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--num-nodes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--dies", type=int, default=-1)
    parser.add_argument("--raises", type=int, default=-1)
    parser.add_argument("--timeout", type=float, default=60.0)
    options = parser.parse_args()
    seed_everything(5)
    x = torch.randn(48, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    trainer = Trainer(
        accelerator="cpu",
        strategy=_strategy(options),
        devices=options.devices,
        num_nodes=options.num_nodes,
        max_epochs=options.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=options.folder,
    )
    module = Net(options)
    trainer.fit(module, DataLoader(data, batch_size=options.batch_size, shuffle=False))
    if trainer.is_global_zero:
        end = {
            "plan": str(trainer.plan),
            "steps": trainer.global_step,
            "parameters": [parameter.tolist() for parameter in module.parameters()],
        }
        Path(options.folder, "end.json").write_text(json.dumps(end))


def _strategy(options: argparse.Namespace) -> object:
    """Return the strategy with a short timeout, as a configured instance."""
    if options.strategy == "ddp":
        from builtin_plugins.ddp.strategy import DDPStrategy

        return DDPStrategy(start_timeout=options.timeout, timeout=options.timeout)
    if options.strategy == "ddp_sharded":
        from builtin_plugins.sharded.strategy import ShardedStrategy

        return ShardedStrategy(start_timeout=options.timeout, timeout=options.timeout)
    return options.strategy


if __name__ == "__main__":
    sys.exit(main())

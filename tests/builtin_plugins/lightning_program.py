"""Put an unmodified LightningModule with its LightningDataModule through all that people do with one.

``lightning_program.py STRATEGY DEVICES FOLDER OUTPUT``; rank 0 writes what it came to.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Trainer


class Sums(pl.LightningModule):
    """Learns the sum of four numbers."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.save_hyperparameters()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._loss(batch), sync_dist=True)

    test_step = validation_step

    def predict_step(self, batch, batch_idx):
        return self(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)

    def _loss(self, batch):
        return (self(batch[0]) - batch[0].sum(1, keepdim=True)).square().mean()


class Numbers(pl.LightningDataModule):
    """The same 32 rows for everything."""

    def train_dataloader(self):
        rows = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
        return DataLoader(TensorDataset(rows), batch_size=4)

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader


def main() -> None:
    strategy, devices, folder, output = sys.argv[1:]
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    settings = {
        "accelerator": "cpu",
        "strategy": strategy,
        "devices": int(devices),
        "default_root_dir": folder,
        **quiet,
    }
    module, data = Sums(), Numbers()
    trainer = Trainer(max_epochs=2, **settings)
    trainer.fit(module, datamodule=data)
    validated = trainer.validate(module, datamodule=data, verbose=False)
    tested = trainer.test(module, datamodule=data, verbose=False)
    predicted = trainer.predict(module, datamodule=data)
    best = trainer.checkpoint_callback.best_model_path
    resumed = Trainer(max_epochs=3, **settings)
    resumed.fit(Sums(), datamodule=data, ckpt_path=best)
    if resumed.is_global_zero:
        found = {
            "validated": validated[0]["val_loss"],
            "tested": tested[0]["val_loss"],
            "predicted": len(predicted or []),
            "epochs": resumed.current_epoch,
            "steps": resumed.global_step / trainer.global_step,
            "width": Sums.load_from_checkpoint(best).hparams.width,
        }
        Path(output).write_text(json.dumps(found))


if __name__ == "__main__":
    main()

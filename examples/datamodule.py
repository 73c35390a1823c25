"""A data module: data and its preparation in one object, for any module and any command.

The script has a command line: ``fit``, ``validate``, ``test`` and ``predict`` with ``--trainer.*``, ``--model.*``
and ``--data.*`` (needs ``pip install "interlock[cli]"``).
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_wine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from core import DataModule, Module
from core.script import CLI


class Wine(DataModule):
    """Chemistry of 178 wines from three growers; scikit-learn ships it.

    Args:
        batch_size: samples per batch.
        seed: of the split into training, validation and test.
    """

    def __init__(self, batch_size: int = 16, seed: int = 0) -> None:
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        features, growers = load_wine(return_X_y=True)
        features = torch.tensor(features, dtype=torch.float32)
        features = (features - features.mean(0)) / features.std(0)
        data = TensorDataset(features, torch.tensor(growers))
        generator = torch.Generator().manual_seed(self.hparams.seed)
        self.training, self.validation, self.testing = random_split(data, [0.6, 0.2, 0.2], generator)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.training, self.hparams.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.validation, self.hparams.batch_size)

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.testing, self.hparams.batch_size)

    def predict_dataloader(self) -> DataLoader:
        return self.test_dataloader()


class Taster(Module):
    """Tells the grower of a wine.

    Args:
        hidden: width of the hidden layer.
        lr: learning rate.
    """

    def __init__(self, hidden: int = 16, lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(13, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, features: Tensor) -> Tensor:
        """Return scores of shape (batch, 3)."""
        return self.net(features)

    def training_step(self, batch, batch_idx):
        features, growers = batch
        loss = nn.functional.cross_entropy(self(features), growers)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self._score("val_acc", batch)

    def test_step(self, batch, batch_idx):
        self._score("test_acc", batch)

    def predict_step(self, batch, batch_idx):
        return self(batch[0]).argmax(1)

    def _score(self, name: str, batch: tuple[Tensor, Tensor]) -> None:
        features, growers = batch
        self.log(name, (self(features).argmax(1) == growers).float().mean(), prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.hparams.lr)


if __name__ == "__main__":
    CLI(Taster, Wine, trainer_defaults={"max_epochs": 20})

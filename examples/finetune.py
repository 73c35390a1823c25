"""Fine-tuning with frozen layers: first the new head alone, then the whole net with a smaller learning rate.

The net learns to tell the digits 0 to 4; then it is given a new head and learns 5 to 9 with few samples.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from core import Callback, Module, Trainer, seed_everything


def digits(low: int, high: int) -> TensorDataset:
    """Return images of the digits from ``low`` to ``high``, labelled from 0: float32 (n, 64) and int64 (n,)."""
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    wanted = (labels >= low) & (labels <= high)
    return TensorDataset(images[wanted], labels[wanted] - low)


class Classifier(Module):
    """A body that finds features and a head that names the digit."""

    def __init__(self, lr: float = 1e-2) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 5)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores of shape (batch, 5)."""
        return self.head(self.body(images))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self(images), labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        correct = (self(images).argmax(1) == labels).float().mean()
        self.log("val_acc", correct, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(
            [
                {"params": self.head.parameters(), "lr": self.hparams.lr},
                {"params": self.body.parameters(), "lr": self.hparams.lr / 10},
            ]
        )


class Unfreeze(Callback):
    """Keeps the body as it is until an epoch, then lets it learn."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_start(self, trainer, module):
        module.body.requires_grad_(trainer.current_epoch >= self.epoch)


def train(model: Classifier, data: TensorDataset, epochs: int, **settings) -> float:
    """Train on most of ``data`` and return the accuracy on the rest."""
    training, validation = random_split(data, [0.8, 0.2])
    trainer = Trainer(max_epochs=epochs, logger=False, enable_checkpointing=False, **settings)
    trainer.fit(model, DataLoader(training, batch_size=32, shuffle=True), DataLoader(validation, batch_size=64))
    return float(trainer.callback_metrics["val_acc"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="example: python examples/finetune.py --epochs 6"
    )
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    seed_everything(1)
    model = Classifier()
    first = train(model, digits(0, 4), options.epochs)
    before = [parameter.detach().clone() for parameter in model.body.parameters()]
    model.head = nn.Linear(32, 5)
    half = max(1, options.epochs // 2)
    second = train(model, digits(5, 9), options.epochs, callbacks=Unfreeze(half))
    moved = sum(
        float((now.detach() - then).abs().sum()) for now, then in zip(model.body.parameters(), before, strict=True)
    )
    print(f"digits 0-4: {first:.3f}; digits 5-9 with a new head: {second:.3f}; the body moved by {moved:.2f}")


if __name__ == "__main__":
    main()

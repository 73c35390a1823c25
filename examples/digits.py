"""Train a small convolutional network on the handwritten digits that scikit-learn ships.

    python examples/digits.py                                     two processes on the processors, sharded
    python examples/digits.py --strategy single_device --devices 1
    python examples/digits.py --precision bf16-mixed --epochs 5 --out runs/bf16

It needs no download: the 1,797 images of 8 x 8 pixels come with scikit-learn (pip install "interlock[examples]").
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy, pad
from torch.utils.data import DataLoader, TensorDataset

from core import Callback, CSVLogger, ModelCheckpoint, Module, Trainer, seed_everything
from core.errors import InterlockError
from core.loggers.plots import plot_metrics
from core.optim import state_bytes


class Digits(Module):
    """Three convolutions and a linear layer: 8 x 8 grey pixels to ten classes."""

    def __init__(self, lr: float, epochs: int):
        super().__init__()
        self.lr, self.epochs = lr, epochs
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(64 * 2 * 2, 10),
        )

    def setup(self, stage: str):
        """Share the processors among the processes; each would take all of them."""
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // self.trainer.world_size))

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss, accuracy = self.evaluate((shifted(images), labels))
        self.log_dict({"loss": loss, "acc": accuracy}, prog_bar=True)  # of this batch, on this process
        over_epoch = {"on_step": False, "on_epoch": True, "sync_dist": True}
        self.log_dict({"train_loss": loss, "train_acc": accuracy}, prog_bar=True, **over_epoch)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, accuracy = self.evaluate(batch)
        self.log_dict({"val_loss": loss, "val_acc": accuracy}, prog_bar=True, sync_dist=True)

    def evaluate(self, batch):
        images, labels = batch
        scores = self(images)
        return cross_entropy(scores, labels), (scores.argmax(1) == labels).float().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.epochs)]


def shifted(images):
    """Return the images moved by up to one pixel, so that the network learns shapes and not places."""
    down, right = torch.randint(3, (2,)).tolist()
    return pad(images, (1, 1, 1, 1))[:, :, down : down + 8, right : right + 8]


class OptimizerMemory(Callback):
    """Ask every rank how many bytes its optimizers hold; a sharded strategy divides them."""

    bytes_per_rank: list[int] = []  # noqa: RUF012 - replaced, never changed

    def on_fit_end(self, trainer: Trainer, module: nn.Module):
        mine = sum(state_bytes(optimizer) for optimizer in trainer.optimizers)
        self.bytes_per_rank = [int(number) for number in trainer.gather(mine)]


def make_loaders(batch_size: int) -> tuple[DataLoader, DataLoader]:
    """Return loaders over four fifths of the digits to train on, and the last fifth to validate on."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    train, val = train_test_split(range(len(labels)), test_size=0.2, stratify=labels, random_state=0)
    labels = torch.tensor(labels)
    return (
        DataLoader(TensorDataset(images[train], labels[train]), batch_size=batch_size, shuffle=True),
        DataLoader(TensorDataset(images[val], labels[val]), batch_size=120),
    )


def parse_arguments() -> argparse.Namespace:
    usage, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=usage, epilog=f"examples:\n{examples}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--accelerator", default="cpu", help="cpu, cuda, ... or auto (default: %(default)s)")
    add("--strategy", default="ddp_sharded", help="ddp, single_device, ... or auto (default: %(default)s)")
    add("--devices", default="2", help="how many, indices such as 0,1, or auto (default: %(default)s)")
    add("--num-nodes", type=int, default=1, help="machines that train together (default: %(default)s)")
    add("--precision", default="32-true", help="64-true, bf16-mixed, ... (default: %(default)s)")
    add("--epochs", type=int, default=20, help="times through the training images (default: %(default)s)")
    add("--batch-size", type=int, default=32, help="images per step and process (default: %(default)s)")
    add("--lr", type=float, default=2e-3, help="learning rate at the start (default: %(default)s)")
    add("--seed", type=int, default=1, help="of weights, order and dropout (default: %(default)s)")
    add("--out", type=Path, default=Path("runs/digits"), help="folder to write to (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    memory = OptimizerMemory()
    best = ModelCheckpoint(args.out, "digits", monitor="val_acc", mode="max")
    try:
        trainer = Trainer(
            accelerator=args.accelerator,
            strategy=args.strategy,
            devices=args.devices,
            num_nodes=args.num_nodes,
            precision=args.precision,
            max_epochs=args.epochs,
            log_every_n_steps=5,
            logger=CSVLogger(args.out, name="", version=""),
            callbacks=[memory, best],
        )
    except InterlockError as error:
        raise SystemExit(f"error: {error}") from None

    if trainer.is_global_zero:  # every process of the run comes here; one of them speaks and writes
        print(trainer.plan, flush=True)
        (args.out / "metrics.csv").unlink(missing_ok=True)  # an earlier run's
    seed_everything(args.seed)
    start = time.perf_counter()
    trainer.fit(Digits(args.lr, args.epochs), *make_loaders(args.batch_size))
    if trainer.is_global_zero:
        report(trainer, best, memory, args.out, time.perf_counter() - start)


def report(trainer: Trainer, best: ModelCheckpoint, memory: OptimizerMemory, out: Path, seconds: float) -> None:
    """Write the picture and the summary, and say where everything is."""
    names = " + ".join(trainer.plan.combination)
    title = f"Handwritten digits: {names}, {trainer.world_size} process{'es' * (trainer.world_size > 1)}"
    accuracy = float(best.best_model_score)
    summary = {
        "val_acc": round(accuracy, 6),
        "world_size": trainer.world_size,
        "epochs": trainer.current_epoch,
        "seconds": round(seconds, 1),
        "optimizer_state_bytes_per_rank": memory.bytes_per_rank,
        "plan": trainer.plan.to_dict(),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    plot_metrics(out / "metrics.csv", out / "curves.png", title=title)
    held = " + ".join(f"{number:,}" for number in memory.bytes_per_rank)
    print(f"validation accuracy {accuracy:.4f} after {seconds:.0f} s; optimizer state {held} bytes")
    print(f"  checkpoint  {best.best_model_path}")
    for label, name in [("metrics", "metrics.csv"), ("curves", "curves.png"), ("summary", "summary.json")]:
        print(f"  {label:<10}  {out / name}")


if __name__ == "__main__":
    main()

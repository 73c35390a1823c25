"""A small transformer that learns to write Python, from the standard library's own sources.

It shows a module with a forward of its own, a schedule per step, text as data, and a look at what was learned.
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from core import Module, Trainer, seed_everything

CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))


def read_sources(limit: int) -> Tensor:
    """Return characters of the standard library as numbers: int64 of shape (limit,)."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = "".join(path.read_text(errors="ignore") for path in sorted(folder.glob("*.py"))[:40])
    numbers = {character: number for number, character in enumerate(CHARACTERS)}
    return torch.tensor([numbers[c] for c in text if c in numbers][:limit])


class Windows(Dataset):
    """Pieces of a text, each with the same piece one character further on."""

    def __init__(self, text: Tensor, length: int) -> None:
        self.text, self.length = text, length

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.length
        piece = self.text[start : start + self.length + 1]
        return piece[:-1], piece[1:]


class CharTransformer(Module):
    """Predicts the next character from those before it.

    Args:
        width: numbers per character inside.
        layers: encoder layers.
        length: characters it looks back.
        lr: learning rate at its height.
    """

    def __init__(self, width: int = 64, layers: int = 2, length: int = 64, lr: float = 3e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.characters = nn.Embedding(len(CHARACTERS), width)
        self.places = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, len(CHARACTERS))

    def forward(self, text: Tensor) -> Tensor:
        """Return scores of shape (batch, length, characters) for ``text``, int64 of shape (batch, length)."""
        length = text.shape[1]
        places = torch.arange(length, device=text.device)
        ahead = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        return self.out(self.encoder(self.characters(text) + self.places(places), mask=ahead, is_causal=True))

    def _loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        text, following = batch
        return nn.functional.cross_entropy(self(text).flatten(0, 1), following.flatten())

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self._loss(batch), prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr, total_steps=max(steps, 2))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    @torch.no_grad()
    def write(self, start: str, count: int) -> str:
        """Return ``start`` and ``count`` characters after it."""
        text = torch.tensor([[CHARACTERS.index(c) for c in start]])
        for _ in range(count):
            scores = self(text[:, -self.hparams.length :])[:, -1]
            text = torch.cat([text, torch.multinomial(scores.softmax(-1), 1)], 1)
        return "".join(CHARACTERS[number] for number in text[0].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="example: python examples/char_transformer.py --epochs 3"
    )
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--characters", type=int, default=300_000, help="length of the text")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--precision", default="32-true")
    options = parser.parse_args()
    seed_everything(1)
    text = read_sources(options.characters)
    cut = int(0.9 * len(text))
    model = CharTransformer()
    length = model.hparams.length
    trainer = Trainer(
        max_epochs=options.epochs,
        strategy=options.strategy,
        devices=options.devices,
        precision=options.precision,
        gradient_clip_val=1.0,
    )
    trainer.fit(
        model,
        DataLoader(Windows(text[:cut], length), batch_size=32, shuffle=True),
        DataLoader(Windows(text[cut:], length), batch_size=32),
    )
    if trainer.is_global_zero:
        print(f"val_loss {float(trainer.callback_metrics['val_loss']):.3f}")
        print(model.eval().to("cpu").float().write("def ", 200))


if __name__ == "__main__":
    main()

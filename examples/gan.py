"""A generative adversarial network by manual optimization: two nets, two optimizers, one training_step.

The generator learns to draw points on a circle; the picture it saves shows how far it came.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from core import Module, Trainer, seed_everything


def circle(count: int) -> Tensor:
    """Return ``count`` points of a noisy circle: float32 of shape (count, 2)."""
    angles = torch.rand(count) * 2 * math.pi
    return torch.stack([angles.cos(), angles.sin()], 1) + 0.05 * torch.randn(count, 2)


def net(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, outputs)
    )


class GAN(Module):
    """A generator and a critic of points in the plane."""

    def __init__(self, noise: int = 4, lr: float = 1e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator, self.critic = net(noise, 2), net(2, 1)

    def forward(self, noise: Tensor) -> Tensor:
        """Return a point for each row of ``noise``, of shape (batch, 2)."""
        return self.generator(noise)

    def training_step(self, batch, batch_idx):
        (real,) = batch
        for_generator, for_critic = self.optimizers()
        noise = torch.randn(len(real), self.hparams.noise, device=real.device)
        real_label, made_label = torch.ones_like(real[:, :1]), torch.zeros_like(real[:, :1])

        with self.toggled_optimizer(for_generator):
            loss_generator = nn.functional.binary_cross_entropy_with_logits(self.critic(self(noise)), real_label)
            for_generator.zero_grad()
            self.manual_backward(loss_generator)
            for_generator.step()

        with self.toggled_optimizer(for_critic):
            judge = nn.functional.binary_cross_entropy_with_logits
            made = self(noise).detach()
            loss_critic = judge(self.critic(real), real_label) + judge(self.critic(made), made_label)
            for_critic.zero_grad()
            self.manual_backward(loss_critic)
            for_critic.step()

        self.log_dict({"loss_generator": loss_generator, "loss_critic": loss_critic}, prog_bar=True)

    def configure_optimizers(self):
        betas = (0.5, 0.999)
        return [torch.optim.Adam(n.parameters(), self.hparams.lr, betas) for n in (self.generator, self.critic)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="example: python examples/gan.py --epochs 30 --picture circle.png"
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--picture", help="where to draw what was made; needs matplotlib")
    options = parser.parse_args()
    seed_everything(1)
    model = GAN()
    trainer = Trainer(max_epochs=options.epochs, logger=False, enable_checkpointing=False)
    trainer.fit(model, DataLoader(TensorDataset(circle(4096)), batch_size=64, shuffle=True))
    points = torch.cat(trainer.predict(model, DataLoader(torch.randn(512, model.hparams.noise), batch_size=128)))
    radius = points.norm(dim=1)
    print(f"made points lie {radius.mean():.2f} +- {radius.std():.2f} from the centre; the circle's radius is 1")
    if options.picture:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        pyplot.figure(figsize=(4, 4))
        pyplot.scatter(*circle(512).T, s=4, alpha=0.4, label="real")
        pyplot.scatter(*points.T, s=4, label="made")
        pyplot.legend()
        pyplot.savefig(options.picture, dpi=120)
        print(f"wrote {options.picture}")


if __name__ == "__main__":
    main()

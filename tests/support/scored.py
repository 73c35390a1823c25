"""A module whose validation says what it is told to say, for callbacks that look at a metric."""

import torch

from core import Module


class Scored(Module):
    """Logs ``val/score``, the next of ``scores`` at each validation, and ``loss`` in training."""

    def __init__(self, scores=(), lr=0.1):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.scores, self.lr = list(scores), lr
        self.validations = 0

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean() * 1e-3
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        pass

    def on_validation_epoch_end(self):
        if self.scores and not self.trainer.sanity_checking:
            self.log("val/score", self.scores[self.validations % len(self.scores)])
            self.validations += 1

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.lr)

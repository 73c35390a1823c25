"""Two ranks whose metrics differ train with callbacks, and write down what each of them saw.

Run as ``python two_ranks.py FOLDER``.
"""

import json
import sys
from pathlib import Path

import torch
from support.nets import loader, quiet_trainer
from torch import nn

from core import ModelCheckpoint, Module
from core.callbacks import (
    EarlyStopping,
    EMAWeightAveraging,
    ModelSummary,
    PredictionWriter,
    StochasticWeightAveraging,
    Timer,
)
from core.loggers import CSVLogger, TensorBoardLogger


class Net(Module):
    """Logs a score that says the opposite on each rank, and trains for real."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        self.example_input_array = torch.ones(2, 4)

    def forward(self, batch):
        return self.layer(batch)

    def prepare_data(self):
        Path(self.trainer.log_dir or ".").mkdir(parents=True, exist_ok=True)  # now a rank that counts counts one more

    def setup(self, stage):
        self.log_dir = self.trainer.log_dir

    def training_step(self, batch, batch_idx):
        return self.layer(batch / 16).pow(2).mean()

    def validation_step(self, batch, batch_idx):
        epoch = float(self.current_epoch)
        self.log("score", epoch if self.global_rank else 9 - epoch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


class Joint(Module):
    """Its loss looks at the outputs of all ranks, as contrastive losses do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layer = nn.Linear(4, 3)

    def training_step(self, batch, batch_idx):
        outputs = self.all_gather(self.layer(batch / 16), sync_grads=True).flatten(0, -2)
        gathered = self.all_gather({"batch": batch, "rank": self.global_rank, "first": self.global_rank == 0})
        self.shape = list(gathered["batch"].shape)
        self.ranks = [gathered["rank"].tolist(), gathered["first"].tolist()]
        return (outputs @ outputs.T).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


def train(folder, *callbacks, **settings):
    trainer = quiet_trainer(
        strategy="ddp", devices=2, callbacks=list(callbacks), max_epochs=4, num_sanity_val_steps=0, **settings
    )
    module, data = Net(), loader(8)
    trainer.fit(module, data, data)
    return trainer, module


def halves(rank):
    """Return this rank's half of each batch of four."""
    return [batch[2 * rank : 2 * rank + 2] for batch in loader(3, 4)]


def sums(values):
    return [round(float(value.double().sum()), 9) for value in values]


def main(folder):
    seen = {}
    saving = ModelCheckpoint(folder / "best", monitor="score", save_top_k=2, save_last=True)
    keeping = ModelCheckpoint(monitor="score", mode="max", every_n_train_steps=3)
    loggers = [CSVLogger(folder / "logs"), TensorBoardLogger(folder / "logs", "board")]
    trainer, module = train(
        folder, saving, keeping, ModelSummary(), logger=loggers, enable_checkpointing=True, enable_model_summary=True
    )
    seen["best"] = [Path(path).name for path in saving.best_k_models]
    seen["scores"] = [float(score) for score in saving.best_k_models.values()]
    seen["last"] = Path(saving.last_model_path).name
    seen["folder"] = str(Path(keeping.dirpath).relative_to(folder))
    seen["versions"] = [logger.version for logger in loggers]
    seen["log_dirs"] = [module.log_dir]
    trainer = quiet_trainer(strategy="ddp", devices=2, logger=CSVLogger(folder / "later"))
    trainer.validate(module, loader(8), verbose=False)
    seen["log_dirs"].append(module.log_dir)
    stopping = EarlyStopping("score", mode="max", patience=2)
    trainer, module = train(folder, stopping)
    seen["stopped"] = [trainer.current_epoch, stopping.wait_count, float(stopping.best_score)]
    _, module = train(folder, EMAWeightAveraging(decay=0.5))
    seen["ema"] = sums(module.parameters())  # statistics of batches are each rank's own
    _, module = train(folder, StochasticWeightAveraging(0.01, swa_epoch_start=2))
    seen["swa"] = sums(module.state_dict().values())
    trainer, module = train(folder, Timer({"seconds": 0}), log_every_n_steps=2)
    seen["timer"] = trainer.global_step
    joint = Joint()
    quiet_trainer(strategy="ddp", devices=2, use_distributed_sampler=False).fit(joint, halves(trainer.global_rank))
    seen["joint"] = [value.tolist() for value in joint.parameters()]
    seen["gathered"] = joint.shape, joint.ranks
    trainer = quiet_trainer(strategy="ddp", devices=2)
    trainer.callbacks = [PredictionWriter(folder / "predictions")]
    trainer.predict(module, loader(3), return_predictions=False)
    (folder / f"rank{trainer.global_rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

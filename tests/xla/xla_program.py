"""Train on XLA in a process of its own, as the arguments say, and write what it came to.

``xla_program.py OUTPUT JOB...``, each job a dictionary in JSON: ``devices`` (a number or a list), ``strategy``,
``case`` (of :class:`support.reference.Case`), ``epochs``, ``resume`` and ``save`` (paths of checkpoints).
"""

from __future__ import annotations

import json
import sys

import torch
from support.reference import GLOBAL_BATCH, Case, Net, dataset, make_trainer
from torch import nn
from torch.utils.data import DataLoader

from core.seed import seed_everything


class Watched(Net):
    """The two networks with dropout between, so that random numbers count; it notes losses and how batches lie."""

    def __init__(self, kind: str, dropout: float) -> None:
        super().__init__(kind)
        self.drop = nn.Dropout(dropout)
        self.losses, self.shardings, self.places = [], set(), set()

    def training_step(self, batch, batch_idx):
        features, target = batch
        self.shardings.add(sharding(features))
        self.places.update({str(features.device), str(self.first[0].weight.device)})
        loss = nn.functional.mse_loss(self.drop(self.first(features)) * self.second(features), target)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch, batch_idx):
        features, target = batch
        self.log("val_loss", nn.functional.mse_loss(self.first(features) * self.second(features), target))

    def predict_step(self, batch, batch_idx):
        return self.first(batch[0])


def sharding(tensor):
    """Return how the runtime lays ``tensor`` over the devices; empty where it does not split it."""
    import torch_xla

    return torch_xla._XLAC._get_xla_sharding_spec(tensor)


def do(job):
    """Train as ``job`` says, and return parameters, losses and metrics in host memory."""
    seed_everything(5)
    case = Case(**job.get("case", {}))
    module = Watched(case.optimizers, job.get("dropout", 0.0))
    loader = DataLoader(dataset(case.batches), batch_size=job.get("batch_size", GLOBAL_BATCH))
    trainer = make_trainer(
        accelerator="xla",
        strategy=job.get("strategy", "single_device"),
        devices=job.get("devices", 1),
        precision=case.precision,
        max_epochs=job.get("epochs", case.epochs),
        accumulate_grad_batches=case.accumulate,
        gradient_clip_val=case.clip,
        gradient_clip_algorithm=case.algorithm,
    )
    trainer.fit(module, loader, loader, ckpt_path=job.get("resume"))
    if "save" in job:
        trainer.save_checkpoint(job["save"])
    return {
        "parameters": {name: value.cpu() for name, value in module.state_dict().items()},
        "losses": [float(loss) for loss in module.losses],
        "metrics": {name: float(value) for name, value in trainer.callback_metrics.items()},
        "shardings": sorted(module.shardings),
        "places": sorted(module.places),
    }


if __name__ == "__main__":
    output, *jobs = sys.argv[1:]
    torch.save([do(json.loads(job)) for job in jobs], output)

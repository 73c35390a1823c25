"""A module that runs out of memory above a batch size, and a look at everything that a search may leave a trace in."""

import copy
import random

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import DataModule, Module

TEXTS = {
    "memory": lambda: MemoryError(),
    "device": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "host": lambda: RuntimeError(
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
    ),
    "cudnn": lambda: RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if ..."),
}


class Hungry(Module):
    """Takes batches up to ``room``; counts its steps, and changes all sorts of things as it goes.

    Args:
        room: the largest batch that fits.
        batch_size: what ``train_dataloader`` reads.
        samples: length of the data.
        error: how running out of memory shows; see :data:`TEXTS`.
        lonely: only this rank runs out of memory; None all.
        optimizer: a function from the module to what ``configure_optimizers`` returns.
    """

    def __init__(self, room=40, batch_size=2, samples=1000, error="memory", lonely=None, optimizer=None):
        super().__init__()
        self.save_hyperparameters(ignore=["optimizer"])
        self.room, self.batch_size, self.samples, self.error, self.lonely = room, batch_size, samples, error, lonely
        self.make_optimizer = optimizer
        self.layer = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
        self.layer[3].eval()
        self.count = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.mean, self.notes, self.epochs = torch.zeros(2), {"sizes": []}, 0
        self.generator = torch.Generator().manual_seed(4)
        self.lr = 0.1

    def loss(self, batch):
        alone = self.lonely is not None and self.lonely != self.trainer.global_rank
        if batch[0].shape[0] > self.room and not alone:
            raise TEXTS[self.error]()
        self.notes["sizes"].append(batch[0].shape[0])
        self.mean += random.random() + numpy.random.rand()
        return self.layer(batch[0]).pow(2).mean()

    def training_step(self, batch, batch_idx):
        self.count += 1
        loss = self.loss(batch)
        self.log("loss", loss)
        self.logger and self.logger.experiment.add_scalar("mine", 1.0)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def on_train_epoch_start(self):
        self.epochs += 1

    def data(self):
        data = torch.linspace(-1, 1, 4 * self.samples).view(-1, 4)
        return DataLoader(TensorDataset(data), self.batch_size, shuffle=True, generator=self.generator)

    train_dataloader = data

    def configure_optimizers(self):
        if self.make_optimizer is not None:
            return self.make_optimizer(self)
        optimizer = torch.optim.Adam(self.parameters(), self.lr)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), "interval": "step"}]


class HungryData(DataModule):
    """Data of its own, with the batch size in an attribute or in the hyperparameters."""

    def __init__(self, batch_size=4, kept=False):
        super().__init__()
        if kept:
            self.save_hyperparameters()
        else:
            self.batch_size = batch_size

    def train_dataloader(self):
        size = self.hparams.batch_size if "batch_size" in self.hparams else self.batch_size
        return DataLoader(TensorDataset(torch.ones(500, 4)), size)


def everything(trainer, module, *more):
    """Return a comparable picture of module, Trainer, callbacks, loggers, ``more`` objects and random numbers."""
    parts = {name: (type(part).__name__, part.training, picture(vars(part))) for name, part in module.named_modules()}
    held = {id(parameter): (parameter.device, parameter.requires_grad) for parameter in module.parameters()}
    seen = {name: picture(value) for name, value in vars(trainer).items() if name not in ("plan", "_run")}
    others = [picture(vars(each)) for each in (*trainer.callbacks, *trainer.loggers, *more)]
    numbers = (random.getstate(), picture(list(numpy.random.get_state())), torch.get_rng_state().tolist())
    return parts, held, seen, others, numbers


def picture(value):
    """Return ``value`` as something that can be compared, and does not change when it does."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), value.detach().clone().tolist(), value.grad is not None)
    if isinstance(value, numpy.ndarray):
        return value.tolist()
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, dict):
        return {str(key): picture(item) for key, item in value.items() if not isinstance(item, nn.Module)}
    if isinstance(value, list | tuple | set):
        return [picture(item) for item in value]
    if isinstance(value, torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler):
        return picture({name: item for name, item in value.state_dict().items()})
    if isinstance(value, int | float | str | bytes | bool | None):
        return copy.copy(value)
    return id(value)

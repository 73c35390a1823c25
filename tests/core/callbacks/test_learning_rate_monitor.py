"""Which learning rates LearningRateMonitor logs, when, and under what names."""

import pytest
import torch
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core import Logger
from core.callbacks import LearningRateMonitor
from core.errors import InvalidArgument


class Rows(Logger):
    """Keeps the rows that it is given, those with a learning rate."""

    def __init__(self):
        self.rows = []

    def log_metrics(self, metrics, step):
        own = {name: round(value, 6) for name, value in metrics.items() if name not in ("loss", "epoch")}
        if own:
            self.rows.append((step, own))


class Net(Scored):
    """Configures what it is told to."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def configure_optimizers(self):
        return self.make(self)


def logged(make, epochs=1, every=2, batches=4, settings=None, **monitor):
    rows = Rows()
    callback = LearningRateMonitor(**monitor)
    arguments = {"log_every_n_steps": every, "max_epochs": epochs, "logger": rows, **(settings or {})}
    trainer = quiet_trainer(callbacks=[callback], **arguments)
    trainer.fit(Net(make), loader(batches))
    return rows.rows, callback, trainer


def per_step(module):
    optimizer = torch.optim.SGD(module.parameters(), 1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def per_epoch(module):
    optimizer = torch.optim.SGD(module.parameters(), 1.0)
    return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


def test_each_scheduler_at_its_own_interval():
    """By default a rate is logged as often as its scheduler steps: the rate that the logged step used."""
    rows, callback, trainer = logged(per_step, epochs=2)
    assert rows == [(2, {"lr-SGD": 0.5}), (4, {"lr-SGD": 0.125}), (6, {"lr-SGD": 0.03125}), (8, {"lr-SGD": 0.007812})]
    assert callback.lrs["lr-SGD"][0] == 0.5
    assert trainer.callback_metrics["lr-SGD"] == pytest.approx(0.0078125)
    rows, _, _ = logged(per_epoch, epochs=2)
    assert rows == [(0, {"lr-SGD": 1.0}), (4, {"lr-SGD": 0.5})]


def test_asked_interval():
    """An interval that is asked for holds for all."""
    assert [step for step, _ in logged(per_step, logging_interval="epoch")[0]] == [0]
    assert [step for step, _ in logged(per_epoch, logging_interval="step")[0]] == [2, 4]


def test_accumulation_logs_once_per_step():
    """With several micro-batches per step each step is logged once."""
    rows, _, _ = logged(per_step, batches=8, settings={"accumulate_grad_batches": 2}, logging_interval="step")
    assert rows == [(2, {"lr-SGD": 0.5}), (4, {"lr-SGD": 0.125})]


def test_names_of_groups_and_optimizers():
    """Groups and further optimizers of one class get numbers, a scheduler's and a group's own names are used."""

    def make(module):
        groups = [
            {"params": [module.layer.weight], "lr": 1.0},
            {"params": [module.layer.bias], "lr": 2.0, "name": "bias"},
        ]
        first = torch.optim.SGD(groups, 0.1, momentum=0.9, weight_decay=0.01)
        second = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 3.0)
        third = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], 4.0, betas=(0.8, 0.9))
        scheduler = torch.optim.lr_scheduler.StepLR(third, 1)
        return [first, second, third], [{"scheduler": scheduler, "name": "warm"}]

    rows, _, _ = logged(make, log_momentum=True, log_weight_decay=True, logging_interval="epoch")
    assert rows[0][1] == {
        **{"lr-SGD/pg1": 1.0, "lr-SGD-momentum/pg1": 0.9, "lr-SGD-weight_decay/pg1": 0.01},
        **{"lr-SGD/bias": 2.0, "lr-SGD-momentum/bias": 0.9, "lr-SGD-weight_decay/bias": 0.01},
        **{"lr-SGD-1": 3.0, "lr-SGD-1-momentum": 0.0, "lr-SGD-1-weight_decay": 0.0},
        **{"warm": 4.0, "warm-momentum": 0.8, "warm-weight_decay": 0.0},
    }


def test_refused_interval():
    """An interval that is none is refused at once."""
    with pytest.raises(InvalidArgument, match="logging_interval='batch'"):
        LearningRateMonitor("batch")

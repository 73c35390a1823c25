"""LambdaCallback, OnExceptionCheckpoint and DeviceStatsMonitor."""

import pytest
import torch
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core import Logger
from core.callbacks import DeviceStatsMonitor, LambdaCallback, OnExceptionCheckpoint
from core.callbacks.device_stats import memory_stats
from core.checkpoint import read_checkpoint
from core.errors import InvalidArgument, WrongType


class Rows(Logger):
    """Keeps the rows that it is given."""

    def __init__(self):
        self.rows = []

    def log_metrics(self, metrics, step):
        self.rows.append((step, dict(metrics)))


def test_lambda_callback_calls_its_functions():
    """Each keyword is called at the hook of its name, with the arguments of that hook."""
    calls = []
    callback = LambdaCallback(
        on_train_epoch_end=lambda trainer, module: calls.append(("epoch", trainer.current_epoch)),
        on_train_batch_end=lambda trainer, module, outputs, batch, index: calls.append(("batch", index)),
        setup=lambda trainer, module, stage: calls.append((stage,)),
        on_test_end=None,
    )
    quiet_trainer(callbacks=[callback]).fit(Scored(), loader(2))
    assert calls == [("fit",), ("batch", 0), ("batch", 1), ("epoch", 0)]


def test_lambda_callback_refuses_what_is_no_hook():
    """A name that is no hook's is refused with the nearest ones, a value that cannot be called with its type."""
    with pytest.raises(InvalidArgument, match=r"no hook 'on_train_epoch_ends'; did you mean on_train_epoch_end"):
        LambdaCallback(on_train_epoch_ends=print)
    with pytest.raises(WrongType, match="on_fit_end must be a function, not int 3"):
        LambdaCallback(on_fit_end=3)


def test_on_exception_checkpoint(tmp_path):
    """Ctrl-C in the third step leaves a checkpoint of the second; a run that ends well leaves none."""

    def interrupt(trainer, module, batch, batch_idx):
        if trainer.global_step == 2:
            raise KeyboardInterrupt

    saving = OnExceptionCheckpoint(tmp_path, "broken-{step}")
    quiet_trainer(callbacks=[saving]).fit(Scored(), loader())
    assert list(tmp_path.iterdir()) == []
    trainer = quiet_trainer(callbacks=[saving, LambdaCallback(on_train_batch_start=interrupt)])
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(Scored(), loader())
    (path,) = tmp_path.iterdir()
    assert path.name == "broken-step=2.ckpt"
    assert read_checkpoint(path)["global_step"] == 2


def test_device_stats_of_the_host():
    """On the host its load and the process's memory go to the loggers, every log_every_n_steps steps."""
    rows = Rows()
    quiet_trainer(callbacks=[DeviceStatsMonitor()], logger=rows, log_every_n_steps=2).fit(Scored(), loader(5))
    own = [(step, row) for step, row in rows.rows if "host/process_peak_mb" in row]
    assert [step for step, _ in own] == [2, 4]
    assert all(row["host/process_peak_mb"] > 10 and "host/load_1min" in row for _, row in own)


def test_device_stats_of_an_accelerator():
    """An accelerator that says how its device is used is asked; the host's part is left out unless wanted."""
    rows = Rows()
    trainer = quiet_trainer(logger=rows, log_every_n_steps=1, callbacks=[DeviceStatsMonitor()])
    add = LambdaCallback(
        on_train_start=lambda trainer, module: setattr(trainer.accelerator, "device_stats", lambda device: {"heat": 7})
    )
    trainer.callbacks.insert(0, add)
    trainer.fit(Scored(), loader(1))
    assert {name: value for name, value in rows.rows[0][1].items() if "/" in name} == {"device/heat": 7.0}


def test_device_stats_of_a_gpu(monkeypatch):
    """What torch knows of a device's memory is given in MB under short names."""

    class Backend:
        @staticmethod
        def memory_stats(device):
            return {"allocated_bytes.all.current": 5_000_000, "num_ooms": 2, "segment.all.peak": 1}

    monkeypatch.setattr(torch, "get_device_module", lambda device: Backend)
    assert memory_stats(torch.device("meta")) == {"memory_allocated_mb": 5.0, "out_of_memory": 2.0}

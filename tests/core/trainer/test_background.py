"""Checkpoints that are written beside the training."""

import subprocess
import sys

import pytest
import torch
from support.nets import Net, loader, quiet_trainer

from core import ModelCheckpoint
from core.checkpoint import io
from core.errors import CheckpointError


def test_a_run_ends_when_its_checkpoints_are_on_disk(tmp_path):
    """With async_checkpointing the file of the last epoch is whole when fit returns, and equals the module."""
    net = Net()
    saving = ModelCheckpoint(tmp_path, filename="{epoch}")
    quiet_trainer(max_epochs=3, async_checkpointing=True, enable_checkpointing=True, callbacks=saving).fit(
        net, loader()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["epoch=2.ckpt"]
    saved = torch.load(tmp_path / "epoch=2.ckpt", weights_only=True)
    torch.testing.assert_close(saved["state_dict"]["layer.weight"], net.layer.weight.detach())


def test_training_does_not_change_a_file_that_is_being_written(tmp_path, monkeypatch):
    """What is written is the state at the time of saving, although training goes on meanwhile."""
    import threading

    go_on = threading.Event()
    really_save = torch.save

    def slowly(*arguments, **keywords):
        go_on.wait(10)
        really_save(*arguments, **keywords)

    monkeypatch.setattr(io.torch, "save", slowly)

    class Saves(Net):
        def on_train_batch_start(self, batch, batch_idx):
            if batch_idx == 1:
                self.at_save = self.layer.weight.detach().clone()
                self.trainer.save_checkpoint(tmp_path / "a.ckpt")
            if batch_idx == 3:
                go_on.set()

    net = Saves()
    quiet_trainer(async_checkpointing=True).fit(net, loader())
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)["state_dict"]["layer.weight"]
    torch.testing.assert_close(saved, net.at_save)
    assert not torch.equal(saved, net.layer.weight)


def test_a_failure_in_the_background_is_raised(tmp_path):
    """A file that cannot be written makes fit raise the error that names it."""

    class Saves(Net):
        def on_train_batch_start(self, batch, batch_idx):
            if batch_idx == 0:
                self.trainer.save_checkpoint(tmp_path / "file" / "a.ckpt")

    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"a\.ckpt"):
        quiet_trainer(async_checkpointing=True).fit(Saves(), loader())


KILLED = """
import os, signal, sys, torch
from core import Trainer, Module
from core.checkpoint import io
class Net(Module):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
    def on_train_batch_start(self, batch, batch_idx):
        if batch_idx == 1:
            self.trainer.save_checkpoint(sys.argv[1])
        if batch_idx == 2:
            self.trainer._run.writer.finish()
            def die(*arguments, **keywords):
                arguments[1].write(b"half")
                arguments[1].flush()
                os.kill(os.getpid(), signal.SIGKILL)
            io.torch.save = die
            self.trainer.save_checkpoint(sys.argv[1])
Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=1,
        async_checkpointing=True).fit(Net(), [torch.ones(2, 4)] * 5)
"""


def test_a_kill_during_writing_leaves_the_file_before(tmp_path):
    """When the program is killed while a checkpoint is written in the background, the one before still loads."""
    (tmp_path / "train.py").write_text(KILLED)
    path = tmp_path / "a.ckpt"
    ended = subprocess.run([sys.executable, tmp_path / "train.py", path], capture_output=True, timeout=60)
    assert ended.returncode < 0
    assert torch.load(path, weights_only=True)["global_step"] == 1

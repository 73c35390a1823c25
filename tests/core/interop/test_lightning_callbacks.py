"""Callbacks and checkpoints of modules written for Lightning."""

import pytest
import torch
from support.nets import Net, loader, quiet_trainer

import core
from core.errors import InterlockError, WrongType

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
callbacks = pytest.importorskip("lightning.pytorch.callbacks")
pytestmark = pytest.mark.filterwarnings("ignore")


class Told(pl.Callback):
    """A callback of Lightning's class: it has no ``log`` before a Trainer gives it one."""

    def on_train_epoch_end(self, trainer, module):
        self.log("theirs", 2.0)
        self.log_dict({"one": 1.0, "other": 3.0}, prog_bar=True)


class Ours(core.Callback):
    """A callback of our class."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.log("last", float(batch_idx), on_step=True, on_epoch=False)


def test_callbacks_log_as_the_module_does():
    """log and log_dict of callbacks, ours and Lightning's, reach callback_metrics; outside a run they are refused."""
    theirs, ours = Told(), Ours()
    trainer = quiet_trainer(callbacks=[theirs, ours])
    trainer.fit(Net(), loader(3))
    values = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert values == {"theirs": 2.0, "one": 1.0, "other": 3.0, "last": 2.0}
    assert set(trainer.progress_bar_metrics) == {"one", "other"}
    for callback in (theirs, ours):
        with pytest.raises(InterlockError, match="called outside a run"):
            callback.log("late", 1.0)


@pytest.mark.parametrize(
    ("name", "settings", "instead"),
    [
        ("EarlyStopping", {"monitor": "loss"}, "EarlyStopping"),
        ("ModelCheckpoint", {}, "ModelCheckpoint"),
        ("LearningRateMonitor", {}, "LearningRateMonitor"),
        ("TQDMProgressBar", {}, "ProgressBar"),
    ],
)
def test_callbacks_that_look_into_lightnings_trainer_are_refused(name, settings, instead):
    """A callback that ships with Lightning and needs its loops is refused when the Trainer is made, naming ours."""
    with pytest.raises(WrongType, match=rf"callback {name} of lightning .*\n  hint: take core\.callbacks\.{instead}$"):
        quiet_trainer(callbacks=getattr(callbacks, name)(**settings))


def test_callbacks_of_lightning_that_need_hooks_only_work():
    """LambdaCallback and BackboneFinetuning of Lightning do here what they do there."""

    class Tuned(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            return self.head(self.backbone(batch / 10)).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], 0.1)

    frozen = []

    def look(trainer, module):
        frozen.append(not module.backbone.weight.requires_grad)

    tuning = callbacks.BackboneFinetuning(unfreeze_backbone_at_epoch=1)
    trainer = quiet_trainer(callbacks=[tuning, callbacks.LambdaCallback(on_train_epoch_end=look)], max_epochs=2)
    trainer.fit(Tuned(), loader(2))
    assert frozen == [True, False]
    assert len(trainer.optimizers[0].param_groups) == 2


class Kept(pl.LightningModule):
    """A LightningModule with hyperparameters."""

    def __init__(self, width=3):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, width)

    def training_step(self, batch, batch_idx):
        return self.layer(batch / 10).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def test_lightnings_own_loading_reads_our_checkpoint(tmp_path):
    """The class's own load_from_checkpoint makes the module with its hyperparameters and the weights we saved."""
    module, trainer = Kept(width=5), quiet_trainer()
    trainer.fit(module, loader(2))
    trainer.save_checkpoint(tmp_path / "ours.ckpt")
    again = Kept.load_from_checkpoint(tmp_path / "ours.ckpt")
    assert again.hparams.width == 5
    torch.testing.assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)
    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(again, loader(2), ckpt_path=tmp_path / "ours.ckpt")
    assert trainer.global_step == 4

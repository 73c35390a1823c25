"""Modules written for Lightning run as they are; only their Trainer is ours."""

import pytest
import torch
from support.nets import quiet_trainer
from torch.utils.data import DataLoader

import core
from core.errors import InterlockError

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
boring = pytest.importorskip("lightning.pytorch.demos.boring_classes")
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_demo_modules_train_validate_test_and_predict():
    """Lightning's own demo module runs all four stages, and is free of our methods afterwards."""
    module = boring.BoringModel()
    trainer = quiet_trainer(max_epochs=2, limit_train_batches=5, limit_val_batches=2)
    trainer.fit(module)
    assert trainer.global_step == 10
    trainer.validate(module, verbose=False)
    trainer.test(module, verbose=False)
    assert len(trainer.predict(module)) == 64
    assert "log" not in vars(module)


def test_a_lightning_data_module_is_used():
    """The demo data module brings the loaders."""
    trainer = quiet_trainer(limit_train_batches=3, limit_val_batches=1)
    trainer.fit(boring.BoringModel(), datamodule=boring.BoringDataModule())
    assert trainer.global_step == 3


def test_manual_optimization_of_a_demo_module_runs():
    """The demo of manual optimization, which checks the type of its optimizer, trains."""
    trainer = quiet_trainer(limit_train_batches=4, limit_val_batches=1)
    trainer.fit(boring.ManualOptimBoringModel())
    assert trainer.global_step == 4


def test_the_transformer_demo_trains():
    """The demo transformer learns from random tokens with its own optimizer."""
    demos = pytest.importorskip("lightning.pytorch.demos")

    class Language(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = demos.Transformer(vocab_size=20, nlayers=1, ninp=16, nhead=2, nhid=16)

        def training_step(self, batch, batch_idx):
            tokens, target = batch
            output = self.model(tokens, target)
            loss = torch.nn.functional.nll_loss(output, target.view(-1))
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr=0.1)

    tokens = torch.randint(0, 20, (16, 7))
    data = DataLoader(torch.utils.data.TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=4)
    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(Language(), data)
    assert trainer.global_step == 8
    assert torch.isfinite(trainer.callback_metrics["train_loss"])


class Measured(pl.LightningModule):
    """Uses most of what people use: hyperparameters, metric objects, a scheduler per step, its own optimizer_step."""

    def __init__(self, width: int = 2):
        super().__init__()
        self.save_hyperparameters()
        metrics = pytest.importorskip("torchmetrics")
        self.net = torch.nn.Linear(4, width)
        self.accuracy = metrics.Accuracy("multiclass", num_classes=width)
        self.rates = []

    def forward(self, batch):
        return self.net(batch)

    def training_step(self, batch, batch_idx):
        assert self.trainer.current_epoch == self.current_epoch
        loss = self(batch).pow(2).mean()
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        return loss

    def validation_step(self, batch, batch_idx):
        scores = self(batch)
        self.accuracy(scores, (batch[:, 0] > 0).long())
        self.log("val_acc", self.accuracy)
        self.log_dict({"mean": scores.mean(), "one": 1.0})

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters())
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)


def data():
    generator = torch.Generator().manual_seed(0)
    return DataLoader(torch.randn(24, 4, generator=generator), batch_size=4)


def test_logging_metrics_and_schedules_work():
    """log with step and epoch values, a torchmetrics object, log_dict and a per-step schedule do what they say."""
    module = Measured()
    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(module, data(), data())
    metrics = trainer.callback_metrics
    assert {"train_loss_step", "train_loss_epoch", "val_acc", "mean", "one"} <= set(metrics)
    correct = (module(next(iter(data()))).argmax(1) == (next(iter(data()))[:, 0] > 0)).float().mean()
    assert 0 <= metrics["val_acc"] <= 1
    assert 0 <= correct <= 1
    assert module.rates[0] > module.rates[-1] > 0
    assert len(module.rates) == 12


@pytest.mark.parametrize("settings", [{}, {"accumulate_grad_batches": 3, "gradient_clip_val": 0.1}])
def test_whole_windows_give_exactly_lightnings_parameters(settings):
    """Where windows are whole, parameters and epoch metrics equal Lightning's to the last bit."""
    ends = []
    for trainer_class in (pl.Trainer, core.Trainer):
        core.seed_everything(7)
        module = Measured()
        trainer = trainer_class(
            accelerator="cpu",
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **settings,
        )
        trainer.fit(module, data(), data())
        ends.append((module.net.weight.detach(), float(trainer.callback_metrics["val_acc"])))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_a_lightning_checkpoint_gives_its_weights(tmp_path):
    """A file that Lightning wrote loads its weights into a module of ours and can be validated from."""
    theirs = Measured()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
        enable_model_summary=False,
    )
    trainer.fit(theirs, data(), data())
    trainer.save_checkpoint(tmp_path / "theirs.ckpt")

    class Ours(core.Module):
        def __init__(self, width):
            super().__init__()
            self.net = torch.nn.Linear(4, width)

    module = Ours.load_from_checkpoint(tmp_path / "theirs.ckpt")
    torch.testing.assert_close(module.net.weight, theirs.net.weight)
    ours = quiet_trainer()
    ours.validate(Measured(), data(), ckpt_path=tmp_path / "theirs.ckpt", verbose=False)


def test_placeholders_of_a_lightning_module_are_not_its_steps():
    """A LightningModule without a step is refused by the step's name, and trains unvalidated with its loaders there."""

    class Bare(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def val_dataloader(self):
            return data()

    with pytest.raises(InterlockError, match="Bare has no training_step and no configure_optimizers"):
        quiet_trainer().fit(Bare(), data())
    with pytest.raises(InterlockError, match="no test_step"):
        quiet_trainer().test(Bare(), data())

    class Trains(Bare):
        def training_step(self, batch, batch_idx):
            return self.net(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = quiet_trainer()
    trainer.fit(Trains(), data())
    assert trainer.global_step == 6
    with pytest.raises(InterlockError, match="no validation_step"):
        trainer.fit(Trains(), data(), data())

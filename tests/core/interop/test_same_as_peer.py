"""The same module under the same settings comes to the same under our Trainer and under Lightning's."""

import pytest
import torch
from support.peer import Line, compare, rows

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    "settings",
    [
        {"val_check_interval": 2},
        {"val_check_interval": 0.5},
        {"check_val_every_n_epoch": 2},
        {"check_val_every_n_epoch": None, "val_check_interval": 3},
        {"limit_train_batches": 0.5},
        {"limit_train_batches": 3, "accumulate_grad_batches": 3},
        {"limit_val_batches": 1},
        {"limit_val_batches": 0},
        {"overfit_batches": 2},
        {"overfit_batches": 0.5},
        {"fast_dev_run": 2},
        {"max_steps": 4},
        {"max_steps": 0},
        {"max_epochs": 0},
        {"min_epochs": 3, "max_epochs": 5},
        {"gradient_clip_val": 0.01},
        {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
        {"num_sanity_val_steps": -1},
        {"num_sanity_val_steps": 0},
        {"accumulate_grad_batches": 2},
        {"precision": "bf16-mixed"},
        {"precision": "64-true"},
        {"precision": "bf16-true"},
        {"max_time": {"hours": 1}},
        {"reload_dataloaders_every_n_epochs": 1},
    ],
    ids=str,
)
def test_settings(tmp_path, settings):
    """Counters, metrics and parameters are the peer's under each setting."""
    compare(Line, tmp_path, **settings)


class Told(Line):
    """Returns one thing after another, and notes what it is told of it."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return [loss, None, {"loss": loss, "more": loss * 2}, {"loss": loss}][batch_idx]

    def on_train_batch_end(self, outputs, batch, batch_idx):
        values = {name: (round(float(value), 5), value.requires_grad) for name, value in outputs.items()}
        self.notes.append((type(outputs), values))


class ToldByHand(Told):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        outputs = super().training_step(batch, batch_idx)
        optimizer.zero_grad()
        self.manual_backward(self.layer(batch).pow(2).mean())
        optimizer.step()
        return outputs


class Scheduled(Line):
    """Notes the rate."""

    interval, frequency = "step", 1

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        how = {"scheduler": schedule, "interval": self.interval, "frequency": self.frequency}
        return {"optimizer": optimizer, "lr_scheduler": how}

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.notes.append(self.trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_epoch_end(self):
        self.notes.append(self.lr_schedulers().get_last_lr())


class ByEpoch(Scheduled):
    interval = "epoch"


class EverySecondEpoch(ByEpoch):
    frequency = 2


class Counts(Line):
    """Notes the counters in its hooks."""

    def note(self, name):
        trainer = self.trainer
        self.notes.append((name, self.current_epoch, self.global_step, trainer.is_last_batch, self.training))

    def on_train_batch_start(self, batch, batch_idx):
        self.note("batch start")

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.note("batch end")

    def on_train_epoch_end(self):
        self.note("epoch end")

    def on_train_end(self):
        self.notes.append(("train end", self.current_epoch, self.global_step))


class Logs(Line):
    """Logs in every way and place."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("both", loss, on_step=True, on_epoch=True)
        self.log("sum", float(batch_idx), reduce_fx="sum", on_step=False, on_epoch=True)
        self.log("largest", float(batch_idx), reduce_fx="max", on_step=False, on_epoch=True)
        self.log_dict({"a": 1.0, "b": loss}, on_step=False, on_epoch=True, batch_size=batch_idx + 1)
        return loss

    def on_train_epoch_start(self):
        self.log("start", 1.0)

    def on_train_epoch_end(self):
        self.log("end", 7.0)

    def on_validation_epoch_end(self):
        self.log("validated", 3.0)


class Frozen(Line):
    """Leaves a part in eval mode."""

    def on_fit_start(self):
        self.layer.eval()

    def validation_step(self, batch, batch_idx):
        self.notes.append(
            (self.training, self.layer.training, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        )

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.notes.append((self.training, self.layer.training))


@pytest.mark.parametrize("kind", [Told, ToldByHand, Scheduled, ByEpoch, EverySecondEpoch, Counts, Logs, Frozen])
def test_modules(tmp_path, kind):
    """What modules are told, count, log and schedule is the peer's."""
    compare(kind, tmp_path, max_epochs=4)


@pytest.mark.parametrize("kind", [Told, Scheduled, ByEpoch, Logs])
def test_modules_in_windows(tmp_path, kind):
    """The same with whole windows of accumulation."""
    compare(kind, tmp_path, accumulate_grad_batches=2)


CALLS = {
    "validate": lambda trainer, module: trainer.validate(module, rows(4), verbose=False),
    "validate two": lambda trainer, module: trainer.validate(module, [rows(4), rows(2)], verbose=False),
    "predict": lambda trainer, module: [len(each) for each in trainer.predict(module, rows(4))],
    "predict two": lambda t, module: [[len(x) for x in each] for each in t.predict(module, [rows(4), rows(2)])],
    "no validation data": lambda trainer, module: trainer.fit(module, rows(), []),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(tmp_path, name):
    """What the Trainer's methods return is the peer's."""
    compare(Line, tmp_path, call=CALLS[name])

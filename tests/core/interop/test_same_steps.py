"""Optimizers, schedules and metric objects in users' hands come to the same as under Lightning's Trainer."""

import pytest
import torch
from support.peer import Line, compare
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore")
metrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")


class Measured(Line):
    """Logs metric objects, collections of them, and values of several types, from several hooks."""

    def __init__(self):
        super().__init__()
        self.error, self.held_out = metrics.MeanSquaredError(), metrics.MeanSquaredError()
        self.both = metrics.MetricCollection({"mse": metrics.MeanSquaredError(), "mae": metrics.MeanAbsoluteError()})
        self.later = self.both.clone(prefix="v_")

    def training_step(self, batch, batch_idx):
        found, wanted = self.layer(batch).squeeze(1), batch.sum(1)
        self.error(found, wanted)
        self.log("error", self.error, on_step=True, on_epoch=True)
        self.both(found, wanted)
        self.log_dict(self.both, on_step=False, on_epoch=True)
        self.log("one", torch.tensor([2.0]))
        self.log("whole", batch_idx)
        return (found - wanted).pow(2).mean()

    def validation_step(self, batch, batch_idx):
        found, wanted = self.layer(batch).squeeze(1), batch.sum(1)
        self.held_out.update(found, wanted)
        self.log("held_out", self.held_out)
        self.later.update(found, wanted)

    def on_validation_epoch_end(self):
        self.log_dict(self.later.compute())
        self.later.reset()

    def on_before_optimizer_step(self, optimizer):
        self.log("norm", sum(p.grad.norm() for p in self.parameters()))

    def on_after_backward(self):
        self.log("after", 1.5)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.log("ended", float(batch_idx), on_step=False, on_epoch=True)


class Halved(Line):
    """A rate that halves at each step of its schedule."""

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)
        return [optimizer], [StepLR(optimizer, 1, 0.5)]


class ByHandInWindows(Halved):
    """Accumulates, steps and schedules by itself."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        self.manual_backward(super().training_step(batch, batch_idx) / 2)
        if batch_idx % 2:
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        self.notes.append((self.trainer.global_step, schedule.get_last_lr()[0]))


class ClosuresByHand(Line):
    """Two optimizers with closures, one of which evaluates it many times."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.second = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        for optimizer, layer in zip(self.optimizers(), (self.layer, self.second), strict=True):

            def closure(optimizer=optimizer, layer=layer):
                optimizer.zero_grad()
                loss = layer(batch).pow(2).mean()
                self.manual_backward(loss)
                return loss

            optimizer.step(closure=closure)
        self.notes.append(self.trainer.global_step)

    def configure_optimizers(self):
        second = torch.optim.LBFGS(self.second.parameters(), 0.1, max_iter=3)
        return torch.optim.SGD(self.layer.parameters(), 0.1), second


class SecondOrder(Line):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), 0.1, max_iter=3)


class OwnStep(Line):
    """Steps in every second window, and lets the rate fall by hand."""

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
        if batch_idx % 4 < 2:
            optimizer.step(closure=optimizer_closure)
        else:
            optimizer_closure()
        for group in optimizer.param_groups:
            group["lr"] *= 0.9
        self.notes.append((epoch, batch_idx, self.global_step))


class OnPlateau(Line):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        schedule = ReduceLROnPlateau(optimizer, patience=0, threshold=10)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val"}}

    def on_train_epoch_start(self):
        self.notes.append(self.trainer.optimizers[0].param_groups[0]["lr"])


class OwnSchedule(Halved):
    def lr_scheduler_step(self, scheduler, metric):
        self.notes.append(metric)
        scheduler.step()


class OwnClipping(Line):
    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        self.clip_gradients(optimizer, gradient_clip_val=0.01, gradient_clip_algorithm="norm")


KINDS = [Measured, Halved, ByHandInWindows, ClosuresByHand, SecondOrder, OwnStep, OnPlateau, OwnSchedule, OwnClipping]


@pytest.mark.parametrize("kind", KINDS)
def test_steps(tmp_path, kind):
    """Counters, metrics, parameters and what the module noted are the peer's."""
    compare(kind, tmp_path, max_epochs=4)


def test_own_steps_in_windows(tmp_path):
    """A module's optimizer_step is asked once for each window, with the closure of its last batch."""
    compare(OwnStep, tmp_path, accumulate_grad_batches=2)


class EveryBatch(Line):
    def training_step(self, batch, batch_idx):
        self.log("index", float(batch_idx), on_step=False, on_epoch=True)
        if batch_idx == 1:
            self.log("seldom", 5.0, on_step=False, on_epoch=True)
        return super().training_step(batch, batch_idx)


def test_means_over_uneven_batches(tmp_path):
    """Means of training are weighted by the size of batches, and by those only that logged."""
    data = DataLoader(torch.arange(28.0).view(7, 4) / 32, batch_size=3)
    compare(EveryBatch, tmp_path, call=lambda trainer, module: trainer.fit(module, data))

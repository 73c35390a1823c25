"""dp: several replicas in one process."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torchmetrics
from support.declared import accelerator, registry_of
from support.reference import GLOBAL_BATCH, Case, Net, by_hand, dataset, furthest, make_trainer
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from builtin_plugins.bf16_mixed import DECLARATION as BF16
from builtin_plugins.dp import DECLARATION as DP
from builtin_plugins.fp32 import DECLARATION as FP32
from core import Callback, Module
from core.errors import InterlockError, InvalidCombination
from core.request import Request

CASES = [
    Case("sgd", 3),
    Case("adamw", 4, clip=0.05, algorithm="value"),
    Case("two", 3, clip=0.5),
    Case("groups", 8, 3),
    Case("sgd", 4, precision="64-true"),
]


def fit(module: Module, samples: int = 32, devices: int = 2, **settings: Any) -> Any:
    """Train on batches of eight and return the Trainer."""
    data = TensorDataset(*(tensor[:samples] for tensor in dataset(10).tensors))
    trainer = make_trainer(strategy="dp", devices=devices, max_epochs=1, **settings)
    trainer.fit(module, DataLoader(data, batch_size=GLOBAL_BATCH), DataLoader(data, batch_size=5))
    return trainer


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_loop_by_hand(case, devices):
    """Replicas train to the parameters of one process on the whole batch."""
    module = Net(case.optimizers)
    trainer = make_trainer(
        strategy="dp",
        devices=devices,
        precision=case.precision,
        max_epochs=case.epochs,
        accumulate_grad_batches=case.accumulate,
        gradient_clip_val=case.clip,
        gradient_clip_algorithm=case.algorithm,
    )
    trainer.fit(module, DataLoader(dataset(case.batches), batch_size=GLOBAL_BATCH))
    assert furthest(dict(module.state_dict()), by_hand(case)) < 1e-6


class Watched(Module):
    """Logs and returns something of each kind, and keeps what comes back."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(dropout), nn.Linear(12, 2))
        self.error = torchmetrics.MeanSquaredError(num_outputs=1)
        self.threads: list[str] = []
        self.outputs: list[Any] = []

    def training_step(self, batch, batch_idx):
        features, target = batch
        self.threads.append(threading.current_thread().name)
        scores = self.net(features)
        loss = nn.functional.mse_loss(scores, target)
        self.error.update(scores, target)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("error", self.error, on_step=False, on_epoch=True)
        self.log("samples", float(len(features)), on_epoch=True, reduce_fx="sum")
        self.log("largest", target.max(), on_epoch=True, on_step=False, reduce_fx="max")
        return {"loss": loss, "scores": scores, "parts": [loss * 2, {"names": [str(x) for x in range(len(features))]}]}

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))
        self.log("seen", len(batch[0]), reduce_fx="sum")
        return batch[0]

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.outputs.append(outputs)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def test_outputs_and_metrics_are_those_of_the_whole_batch():
    """Callbacks get outputs of the whole batch, nested ones too, and logged values count every sample once."""
    module = Watched()
    trainer = fit(module, samples=30, devices=3)  # batches of 8, 8, 8 and 6
    assert sorted(module.threads) == [f"replica-{number}_0" for number in range(3) for _ in range(4)]
    first, last = module.outputs[0], module.outputs[-1]
    assert first["scores"].shape == (8, 2)
    assert not first["scores"].requires_grad
    assert torch.isclose(first["loss"], nn.functional.mse_loss(first["scores"], dataset(10).tensors[1][:8]))
    assert torch.isclose(first["parts"][0], 2 * first["loss"])
    assert first["parts"][1]["names"] == ["0", "1", "0", "1", "2", "0", "1", "2"]
    assert last["scores"].shape == (6, 2)
    losses = torch.stack([output["loss"].detach() for output in module.outputs])
    weights = torch.tensor([8.0, 8.0, 8.0, 6.0])
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert metrics["loss_epoch"] == pytest.approx(float((losses * weights).sum() / 30))
    assert metrics["error"] == pytest.approx(metrics["loss_epoch"])
    assert metrics["loss_step"] == pytest.approx(float(losses[-1]))
    assert metrics["samples_epoch"] == 30
    features, target = (tensor[:30] for tensor in dataset(10).tensors)
    assert metrics["largest"] == pytest.approx(float(target.max()))
    assert metrics["seen"] == 30
    module.eval()
    with torch.no_grad():
        expected = nn.functional.mse_loss(module.net(features), target)
    assert metrics["val_loss"] == pytest.approx(float(expected))


def test_random_numbers_do_not_depend_on_the_threads():
    """Two runs with dropout from the same seed give the same bits; another seed gives others."""
    found = []
    for seed in (5, 5, 6):
        module = Watched(dropout=0.5)
        torch.manual_seed(seed)
        fit(module, devices=3)
        found.append(module.net[3].weight.detach().clone())
    assert found[0].equal(found[1])
    assert not found[0].equal(found[2])


def test_model_without_random_numbers_leaves_the_generator_alone():
    """Where nothing is drawn, the order in which a loader shuffles stays that of one device."""
    torch.manual_seed(5)
    fit(Watched())
    after_dp = torch.rand(1)
    torch.manual_seed(5)
    single = make_trainer(max_epochs=1)
    data = TensorDataset(*(tensor[:32] for tensor in dataset(10).tensors))
    single.fit(Watched(), DataLoader(data, batch_size=GLOBAL_BATCH), DataLoader(data, batch_size=5))
    assert after_dp.equal(torch.rand(1))


class SaveInside(Callback):
    """Saves after the second batch of the second epoch."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.current_epoch == 1 and batch_idx == 1:
            trainer.save_checkpoint(self.path)


def test_resumed_run_has_the_same_losses(tmp_path):
    """A run with dropout and shuffling that goes on from inside an epoch has the losses of the unbroken one."""
    losses = []
    for ckpt_path in (None, tmp_path / "inside.ckpt"):
        torch.manual_seed(5 if ckpt_path is None else 77)
        module = Watched(dropout=0.3)
        callbacks = [SaveInside(tmp_path / "inside.ckpt")] if ckpt_path is None else []
        trainer = make_trainer(strategy="dp", devices=2, max_epochs=3, callbacks=callbacks)
        trainer.fit(module, DataLoader(dataset(4), batch_size=GLOBAL_BATCH, shuffle=True), ckpt_path=ckpt_path)
        losses.append([float(output["loss"].detach()) for output in module.outputs])
    assert len(losses[0]) == 12
    assert losses[1] == losses[0][6:]


class Faulty(Watched):
    def training_step(self, batch, batch_idx):
        if threading.current_thread().name.startswith("replica-1"):
            raise ValueError("on purpose")
        return super().training_step(batch, batch_idx)


def test_replica_that_raises_is_named():
    """An error in a replica ends the run with that replica's traceback and number."""
    with pytest.raises(ValueError, match="on purpose") as caught:
        fit(Faulty())
    assert "raised in replica 1 of 2" in caught.value.__notes__
    assert "Faulty" in str(caught.traceback[-1].frame.code.raw.co_qualname)


class WithClosure(Net):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), lr=0.3, max_iter=4)


def test_closure_is_evaluated_in_replicas():
    """LBFGS, which evaluates the loss several times a step, ends where it ends on one device."""
    found = []
    for strategy, devices in (("dp", 2), ("single_device", 1)):
        module = WithClosure()
        trainer = make_trainer(strategy=strategy, devices=devices, max_epochs=1, precision="64-true")
        trainer.fit(module, DataLoader(dataset(3), batch_size=GLOBAL_BATCH))
        found.append(dict(module.state_dict()))
    assert furthest(*found) < 1e-6


def test_mixed_precision_reaches_the_replicas():
    """Under bf16-mixed the replicas compute in bfloat16 as one device does."""
    seen = []

    class Mixed(Net):
        def training_step(self, batch, batch_idx):
            seen.append(self.first(batch[0]).dtype)
            return super().training_step(batch, batch_idx)

    make_trainer(strategy="dp", devices=2, max_epochs=1, precision="bf16-mixed").fit(
        Mixed(), DataLoader(dataset(1), batch_size=GLOBAL_BATCH)
    )
    assert set(seen) == {torch.bfloat16}


class Checkpointing(Watched):
    def training_step(self, batch, batch_idx):
        scores = checkpoint(self.net, batch[0], use_reentrant=False)
        return nn.functional.mse_loss(scores, batch[1])


def test_dropout_in_checkpointed_parts_is_refused():
    """Activation checkpointing cannot repeat a replica's random numbers, so that is refused where any are drawn."""
    fit(Checkpointing())
    with pytest.raises(InterlockError, match="activation checkpointing"):
        fit(Checkpointing(dropout=0.5))


class LossInOne(Watched):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss if threading.current_thread().name.startswith("replica-0") else None


def test_loss_in_some_replicas_only_is_refused():
    """A step that returns no loss in one replica, but in another, is refused."""
    with pytest.raises(InterlockError, match="no loss in replica 1 of 2"):
        fit(LossInOne())


class Manual(Watched):
    automatic_optimization = False


@pytest.mark.parametrize(
    ("settings", "module", "token"),
    [
        ({"sync_batchnorm": True}, Watched, "sync_batchnorm"),
        ({"num_nodes": 2}, Watched, "nodes.many"),
        ({}, Manual, "manual_optimization"),
    ],
)
def test_what_it_cannot_do_is_refused(settings, module, token):
    """Batch norm over replicas, several nodes and manual optimization are refused, naming the token."""
    with pytest.raises(InvalidCombination) as refused:
        fit(module(), **settings)
    assert token in [violation.token for violation in refused.value.violations]


def test_accelerator_without_replicas_is_refused():
    """An accelerator that cannot drive several devices from one process is refused."""
    registry = registry_of(DP, FP32, BF16, accelerator("odd", provides=("device.cpu",)))
    with pytest.raises(InvalidCombination, match="needs replicas"):
        registry.resolve(Request.build("odd", "32-true", "dp", devices=2))

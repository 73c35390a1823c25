"""Averages of weights: what they come to, where they are used, and what checkpoints hold of them."""

import copy

import pytest
import torch
from support.nets import loader, quiet_trainer
from torch import nn

from core import Callback, ModelCheckpoint, Module
from core.callbacks import EMAWeightAveraging, StochasticWeightAveraging, WeightAveraging
from core.checkpoint import read_checkpoint
from core.errors import InterlockError, InvalidArgument


class Net(Module):
    """Trains for real, with batch norm and dropout, and notes what validation saw."""

    def __init__(self, scheduler=False):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.layer = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.seen, self.scheduler = [], scheduler

    def training_step(self, batch, batch_idx):
        return (self.layer(batch / 16) - batch[:, :1] / 16).pow(2).mean()

    def validation_step(self, batch, batch_idx):
        if batch_idx == 0 and not self.trainer.sanity_checking:
            self.seen.append(self.layer[0].weight.clone())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)
        if not self.scheduler:
            return optimizer
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


class Trace(Callback):
    """Keeps the weights after each step."""

    def __init__(self):
        self.weights = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.weights.append(copy.deepcopy(module.state_dict()))


def fit(averaging, net=None, epochs=2, ckpt_path=None, more=(), validate=True, **settings):
    net, trace = net or Net(), Trace()
    saving = {"enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in more)}
    trainer = quiet_trainer(callbacks=[trace, averaging, *more], max_epochs=epochs, **saving, **settings)
    trainer.fit(net, loader(4), loader(4) if validate else None, ckpt_path=ckpt_path)
    return net, trace, trainer


def equal(state, expected):
    assert state.keys() == expected.keys()
    return all(torch.allclose(state[name].double(), expected[name].double(), atol=1e-6) for name in expected)


def test_ema_equals_a_hand_written_one():
    """The module ends with the exponential average of its weights after each step, buffers too."""
    net, trace, _ = fit(EMAWeightAveraging(decay=0.8))
    average = trace.weights[0]
    for weights in trace.weights[1:]:
        for name, value in weights.items():
            if value.is_floating_point():
                average[name] = 0.8 * average[name] + 0.2 * value
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            assert torch.allclose(value, average[name], atol=1e-6), name


def test_validation_sees_the_average_and_training_does_not():
    """Validation runs with the average of the steps so far; training goes on as it would without it."""
    net, trace, _ = fit(EMAWeightAveraging(decay=0.0))
    plain, plain_trace, _ = fit(WeightAveraging())
    for step, weights in enumerate(trace.weights):
        assert equal(weights, plain_trace.weights[step])
    assert torch.equal(net.seen[0], trace.weights[3]["layer.0.weight"])
    mean = torch.stack([weights["layer.0.weight"] for weights in plain_trace.weights[:4]]).mean(0)
    assert torch.allclose(plain.seen[0], mean, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"update_every_n_steps": 3}, [0, 3, 6]),
        ({"update_starting_at_step": 5}, [5, 6, 7]),
        ({"update_starting_at_step": 100, "update_starting_at_epoch": 1}, [7]),
        ({"update_starting_at_step": 100}, []),
    ],
    ids=str,
)
def test_moments_of_updates(settings, steps):
    """The arguments say after which steps the average is updated; without an update nothing changes."""
    averaging = EMAWeightAveraging(decay=0.0, **settings)
    net, trace, _ = fit(averaging)
    assert averaging.state_dict()["count"] == len(steps)
    assert equal(net.state_dict(), trace.weights[steps[-1] if steps else -1])


def test_accumulation_counts_steps_not_batches():
    """A window of micro-batches is one update."""
    averaging = WeightAveraging()
    fit(averaging, epochs=1, accumulate_grad_batches=2)
    assert averaging.state_dict() == {"count": 2}


def test_checkpoint_holds_the_average_and_resumes_the_weights(tmp_path):
    """The weights of a checkpoint are the average, and resuming gives what an unbroken run gives."""
    saving = ModelCheckpoint(tmp_path, save_top_k=-1)
    whole, trace, _ = fit(EMAWeightAveraging(decay=0.8), epochs=3, more=[saving])
    first = str(tmp_path / "epoch=0-step=4.ckpt")
    checkpoint = read_checkpoint(first)
    assert torch.equal(checkpoint["state_dict"]["layer.0.weight"], whole.seen[0])
    assert equal(checkpoint["current_model_state"], trace.weights[3])
    again = ModelCheckpoint(tmp_path / "again")
    resumed, _, _ = fit(EMAWeightAveraging(decay=0.8), Net(), epochs=3, ckpt_path=first, more=[again])
    assert equal(resumed.state_dict(), whole.state_dict())


def test_checkpoint_written_while_validating(tmp_path):
    """A checkpoint written in the middle of validation holds the same as one written after it."""

    class Inside(Callback):
        def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
            if not trainer.sanity_checking and batch_idx == 0 and trainer.current_epoch == 0:
                trainer.save_checkpoint(tmp_path / "inside.ckpt")

    fit(EMAWeightAveraging(decay=0.8), more=[Inside(), ModelCheckpoint(tmp_path, save_top_k=-1)])
    inside, after = (read_checkpoint(tmp_path / name) for name in ("inside.ckpt", "epoch=0-step=4.ckpt"))
    assert equal(inside["state_dict"], after["state_dict"])
    assert equal(inside["current_model_state"], after["current_model_state"])


def test_an_error_in_validation_gives_the_weights_back():
    """After an error in validation the module holds the weights that training had."""

    class Failing(Net):
        def validation_step(self, batch, batch_idx):
            if not self.trainer.sanity_checking:
                raise RuntimeError("in validation")

    net, trace = Failing(), Trace()
    trainer = quiet_trainer(callbacks=[trace, EMAWeightAveraging(decay=0.5)])
    with pytest.raises(RuntimeError, match="in validation"):
        trainer.fit(net, loader(4), loader(4))
    assert equal(net.state_dict(), trace.weights[-1])


@pytest.mark.parametrize("averaging", [EMAWeightAveraging(), StochasticWeightAveraging(0.1)])
def test_parts_of_weights_are_refused(averaging):
    """Where a rank holds a part of each parameter that is said before training."""
    net = Net()
    for parameter in net.parameters():
        parameter.full_tensor = None
    with pytest.raises(InterlockError, match="each rank holds a part of every parameter"):
        fit(averaging, net)


def test_two_averages_are_refused():
    """Two that would both swap the weights are refused before training."""
    with pytest.raises(InvalidArgument, match="EMAWeightAveraging and WeightAveraging would both"):
        fit(EMAWeightAveraging(), more=[WeightAveraging()])


@pytest.mark.parametrize("scheduler", [False, True])
def test_swa_averages_epochs_and_renews_batch_norm(scheduler):
    """SWA ends with the mean of the weights after its epochs, at its own rate, with batch norm computed anew."""
    averaging = StochasticWeightAveraging(0.01, swa_epoch_start=0.6, annealing_epochs=1)
    net, trace, trainer = fit(averaging, Net(scheduler), epochs=5, validate=False)
    ends = trace.weights[4 * 2 + 3 :: 4]  # the epochs from the third on
    assert len(ends) == 3
    for name, value in net.named_parameters():
        assert torch.allclose(value, torch.stack([weights[name] for weights in ends]).mean(0), atol=1e-6)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01)
    with torch.no_grad():
        batches = [net.layer[0](batch / 16) for batch in loader(4)]
    assert torch.allclose(net.layer[1].running_mean, torch.stack([b.mean(0) for b in batches]).mean(0), atol=1e-6)
    assert net.layer[1].momentum == 0.1


def test_swa_resumes_to_the_same(tmp_path):
    """Resumed in the middle of averaging, SWA ends where an unbroken run ends."""
    make = lambda: StochasticWeightAveraging(0.01, swa_epoch_start=2, annealing_epochs=2)  # noqa: E731
    whole, _, _ = fit(make(), Net(True), epochs=5, more=[ModelCheckpoint(tmp_path, save_top_k=-1)])
    path = str(tmp_path / "epoch=2-step=12.ckpt")
    resumed, _, _ = fit(make(), Net(True), epochs=5, ckpt_path=path, more=[ModelCheckpoint(tmp_path / "again")])
    assert equal(resumed.state_dict(), whole.state_dict())


@pytest.mark.parametrize(
    "settings",
    [
        {"swa_lrs": 0.0},
        {"swa_lrs": []},
        {"swa_lrs": 0.1, "swa_epoch_start": 0},
        {"swa_lrs": 0.1, "swa_epoch_start": 1.5},
    ],
    ids=str,
)
def test_swa_refused_arguments(settings):
    """A rate or a start outside its range is refused at once."""
    with pytest.raises(InvalidArgument):
        StochasticWeightAveraging(**settings)


def test_ema_refused_decay():
    """A decay outside 0 to 1 is refused at once."""
    with pytest.raises(InvalidArgument, match=r"decay=1\.5"):
        EMAWeightAveraging(decay=1.5)

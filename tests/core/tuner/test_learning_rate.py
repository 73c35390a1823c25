"""The search for a learning rate."""

import math

import pytest
import torch
from support.hungry import Hungry, HungryData, everything
from support.nets import loader, quiet_trainer
from torch import nn

from core import Callback, ModelCheckpoint, Module
from core.callbacks import LearningRateFinder
from core.errors import InterlockError
from core.loggers import ConsoleLogger
from core.tuner import LRFinder, Tuner


@pytest.fixture(autouse=True)
def seeded():
    """Let random numbers be the same in every test."""
    torch.manual_seed(1)


class Quadratic(Module):
    """Learns the weight 3 from the target 3, at a rate that diverges above 1."""

    def __init__(self, lr=0.01, where="lr"):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        setattr(self, where, lr)
        self.where = where
        self.rates = []

    def training_step(self, batch, batch_idx):
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        return (self.weight - 3).pow(2)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), getattr(self, self.where))


def find(module, **arguments):
    settings = {"min_lr": 1e-4, "max_lr": 10.0, "num_training": 50, **arguments}
    return Tuner(quiet_trainer()).lr_find(module, loader(3), **settings)


@pytest.mark.parametrize(
    ("mode", "rates"),
    [("exponential", [1e-4, 1e-3, 1e-2, 1e-1]), ("linear", [1e-4, 0.0334, 0.0667, 0.1])],
)
def test_rates_of_the_sweep(mode, rates):
    """The rates go from the first to the last in equal steps, or by equal factors, one for each optimizer step."""
    module = Quadratic()
    found = find(module, max_lr=0.1, num_training=4, mode=mode, update_attr=False)
    assert found.results["lr"] == pytest.approx(rates, rel=1e-2)
    assert (found.mode, found.lr_min, found.lr_max, found.num_training) == (mode, 1e-4, 0.1, 4)


def test_losses_equal_those_by_hand():
    """The losses are those of the sweep by hand, smoothed without bias."""
    found = find(Quadratic(), max_lr=0.1, num_training=12, update_attr=False)
    weight, mean, losses = 0.0, 0.0, []
    for step, rate in enumerate(found.results["lr"], 1):
        loss = (weight - 3) ** 2
        weight -= rate * 2 * (weight - 3)
        mean = 0.98 * mean + 0.02 * loss
        losses.append(mean / (1 - 0.98**step))
    assert found.results["loss"] == pytest.approx(losses, rel=1e-5)


def test_stops_when_the_loss_explodes():
    """The sweep ends once the loss is so many times the best, and never without a threshold."""
    stopped = find(Quadratic(), max_lr=1e4, num_training=100, update_attr=False)
    losses = stopped.results["loss"]
    assert len(losses) < 100
    assert losses[-1] > 4 * min(losses)
    assert max(losses[:-1]) <= 4 * min(losses)
    whole = find(Quadratic(), max_lr=2.0, num_training=60, early_stop_threshold=None, update_attr=False)
    assert len(whole.results["loss"]) == 60


def test_ends_at_a_loss_that_is_not_finite():
    """A loss that is not finite ends the sweep and is not among its losses."""

    class Breaking(Quadratic):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return loss * math.nan if len(self.rates) > 5 else loss

    found = find(Breaking(), early_stop_threshold=None, update_attr=False)
    assert len(found.results["loss"]) == 5
    assert all(map(math.isfinite, found.results["loss"]))


def test_suggestion_is_the_steepest_descent():
    """The suggestion is where the loss falls fastest, ends left out; of too few losses there is none."""
    losses = [10.0, 0.0, 9.0, 8.9, 8.8, 5.0, 1.0, 0.9, 0.8, 0.0]
    found = LRFinder("linear", 0.0, 9.0, 10, {"lr": [float(n) for n in range(10)], "loss": losses})
    assert found.suggestion(skip_begin=2, skip_end=1) == 5.0
    assert found.suggestion(skip_begin=0, skip_end=0) == 0.0
    assert found.suggestion() is None


@pytest.mark.parametrize(("where", "name"), [("lr", ""), ("learning_rate", ""), ("eta", "eta")])
def test_suggestion_is_written_back(where, name):
    """The suggestion goes to lr or learning_rate, or to the attribute that is named; update_attr=False leaves it."""
    module = Quadratic(where=where)
    suggestion = find(module, attr_name=name).suggestion()
    assert getattr(module, where) == suggestion
    assert 1e-3 < suggestion < 1.0
    untouched = Quadratic(where=where)
    find(untouched, attr_name=name, update_attr=False)
    assert getattr(untouched, where) == 0.01


def test_plot(tmp_path):
    """The plot is a figure of the sweep with the suggestion marked, and a PNG where a path is given."""
    found = find(Quadratic(), update_attr=False)
    figure = found.plot(suggest=True, path=tmp_path / "sweep.png")
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert list(axes.lines[0].get_xdata()) == found.results["lr"]
    assert list(axes.lines[1].get_xdata()) == [found.suggestion()]
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_accumulation_is_kept():
    """With accumulation a step of the sweep is a window of batches."""
    module = Quadratic()
    trainer = quiet_trainer(accumulate_grad_batches=2)
    Tuner(trainer).lr_find(module, loader(4), num_training=6, update_attr=False)
    assert module.rates == []  # what the search did to the module is undone

    class Counting(Quadratic):
        calls = 0

        def training_step(self, batch, batch_idx):
            type(self).calls += 1
            return super().training_step(batch, batch_idx)

    found = Tuner(trainer).lr_find(Counting(), loader(4), num_training=6, update_attr=False)
    assert (len(found.results["loss"]), Counting.calls) == (6, 12)


@pytest.mark.parametrize("precision", ["32-true", "64-true", "16-mixed"])
def test_no_trace(tmp_path, monkeypatch, precision):
    """Nothing but the rate is other than before, no file is left, and a second search finds the same."""
    monkeypatch.chdir(tmp_path)
    module = Hungry(room=10**6)
    saving = ModelCheckpoint(tmp_path / "saved")
    settings = {"callbacks": [saving], "enable_checkpointing": True, "logger": ConsoleLogger()}
    trainer = quiet_trainer(precision=precision, **settings)
    before = everything(trainer, module)
    sweep = {"num_training": 30, "max_lr": 1e-2, "early_stop_threshold": None}
    first, second = (Tuner(trainer).lr_find(module, **sweep) for _ in range(2))
    assert first.results == second.results
    assert module.lr == first.suggestion() != 0.1
    module.lr = 0.1
    assert everything(trainer, module) == before
    assert list(tmp_path.iterdir()) == []


def test_no_trace_in_given_loaders():
    """A loader that was given, its sampler and its generator are as before."""
    generator = torch.Generator().manual_seed(9)
    data = loader(6, shuffle=True, generator=generator)
    before = generator.get_state(), dict(vars(data))
    first = [batch.tolist() for batch in data]
    generator.set_state(before[0])
    find_in = Tuner(quiet_trainer()).lr_find(Quadratic(), data, num_training=9, update_attr=False)
    assert len(find_in.results["loss"]) == 9
    assert torch.equal(generator.get_state(), before[0])
    assert vars(data) == before[1]
    assert [batch.tolist() for batch in data] == first


def test_no_trace_of_a_failed_search():
    """An error in the search comes out as it is, and everything is as before."""

    class Failing(Hungry):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            if batch_idx == 4:
                raise OSError("disk on fire")

    module, trainer = Failing(), quiet_trainer()
    before = everything(trainer, module)
    with pytest.raises(OSError, match="disk on fire"):
        Tuner(trainer).lr_find(module, early_stop_threshold=None)
    assert everything(trainer, module) == before


def weights_of_a_fit(callback):
    """Return the weights after a fit that ``callback`` takes part in, and the module."""
    torch.manual_seed(7)
    module = Hungry(samples=20)
    trainer = quiet_trainer(callbacks=[callback], max_epochs=2)
    trainer.fit(module)
    return module.state_dict(), module


def test_search_in_the_middle_of_training():
    """A search in the middle of an epoch sees the model of the moment, and training goes on as without it."""
    found = {}

    class Middle(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.global_step in (7, 13):
                before = everything(trainer, module, *trainer.optimizers), module.lr
                found[trainer.global_step] = Tuner(trainer).lr_find(module, num_training=5, update_attr=False)
                assert (everything(trainer, module, *trainer.optimizers), module.lr) == before

    plain, _ = weights_of_a_fit(Callback())
    searched, _ = weights_of_a_fit(Middle())
    assert all(torch.equal(plain[name], searched[name]) for name in plain)
    assert found[7].results["loss"] != found[13].results["loss"]


def test_finder_trains_with_what_it_found():
    """LearningRateFinder lets the optimizer and its scheduler go on from the rate that it found."""
    seen = []

    class Watch(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            seen.append(trainer.optimizers[0].param_groups[0]["lr"])

    finder = LearningRateFinder(num_training_steps=30, max_lr=1e-2, early_stop_threshold=None)
    module = Hungry(samples=20)
    quiet_trainer(callbacks=[finder, Watch()], limit_train_batches=3).fit(module)
    rate = finder.optimal_lr.suggestion()
    assert module.lr == rate != 0.1
    assert seen == pytest.approx([rate, rate * 0.9, rate * 0.81])


def test_rate_of_a_data_module_is_not_needed():
    """A data module may stand in the place of loaders."""
    found = Tuner(quiet_trainer()).lr_find(Hungry(room=10**6), HungryData(), num_training=5, update_attr=False)
    assert len(found.results["loss"]) == 5


def two_optimizers(module):
    return [torch.optim.SGD([parameter], 0.1) for parameter in module.layer[0].parameters()]


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (Hungry, {"attr_name": "rate"}, "lr_find found no 'rate' in Hungry and its hparams"),
        (Hungry, {"min_lr": 1.0, "max_lr": 0.1}, "min_lr=1.0 and max_lr=0.1"),
        (Hungry, {"num_training": 1}, "num_training=1"),
        (Hungry, {"mode": "cubic"}, "mode='cubic'"),
        (Hungry, {"method": "test"}, "method='test'"),
        (lambda: Hungry(optimizer=two_optimizers), {}, "a module with one optimizer; Hungry has 2"),
    ],
)
def test_refused(make, arguments, message):
    """What cannot work is refused with what is wrong."""
    with pytest.raises(InterlockError, match=message):
        Tuner(quiet_trainer()).lr_find(make(), **arguments)


def test_batches_that_can_be_read_once():
    """A loader that can be read only once is refused, and none of its batches is used up."""
    batches = iter([torch.ones(2, 4)] * 3)
    with pytest.raises(InterlockError, match="would use up the batches of a list_iterator"):
        Tuner(quiet_trainer()).lr_find(Quadratic(), batches, num_training=3)
    assert len(list(batches)) == 3


def test_too_few_losses():
    """Where there is nothing to suggest the attribute is left alone and a warning says so."""
    module = Quadratic()
    with pytest.warns(UserWarning, match="suggests nothing from 5 losses"):
        find(module, num_training=5)
    assert module.lr == 0.01


def test_manual_optimization_is_refused():
    """A module that optimizes by itself sets its rates by itself."""
    module = Hungry()
    module.automatic_optimization = False
    with pytest.raises(InterlockError, match="automatic_optimization = False"):
        Tuner(quiet_trainer()).lr_find(module)

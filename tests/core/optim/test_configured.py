"""What configure_optimizers may return, and when schedulers step."""

from __future__ import annotations

import warnings

import pytest
import torch
from support.reference import GLOBAL_BATCH, Net, dataset, make_trainer
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.utils.data import DataLoader

from core import Callback, Trainer
from core.errors import InterlockError, InvalidArgument, WrongType


class Configured(Net):
    """A net whose optimizers are made by a function of the test."""

    def __init__(self, configure):
        super().__init__()
        self.configure = configure
        self.val_losses = iter([3.0, 2.0, 5.0, 6.0, 7.0])

    def configure_optimizers(self):
        return self.configure(self)

    def validation_step(self, batch, batch_idx):
        if batch_idx == 0:
            self.log("val_loss", next(self.val_losses))


class Rates(Callback):
    """Notes the learning rate that each step was taken with."""

    def __init__(self):
        self.rates = []

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])


@pytest.fixture
def one_rank(tmp_path):
    """A process group of one, as sharding optimizers want one."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def loader(batches=4):
    return DataLoader(dataset(batches), GLOBAL_BATCH)


def fit(configure, *, validate=False, **arguments):
    """Train and return the rates, the module and the trainer; any warning of torch's is an error."""
    rates, module = Rates(), Configured(configure)
    trainer = make_trainer(callbacks=rates, **{"max_epochs": 2, "num_sanity_val_steps": 0, **arguments})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.fit(module, loader(), loader(1) if validate else None)
    return rates.rates, module, trainer


def sgd(module, lr=1.0):
    """Return an optimizer of both parts of the net; the rate is so small that numbers stay finite."""
    return SGD(module.parameters(), lr=lr * 1e-3)


def two(module):
    return [SGD(module.first.parameters(), lr=1e-3), SGD(module.second.parameters(), lr=1e-3)]


def halving(optimizer):
    return StepLR(optimizer, 1, gamma=0.5)


def with_scheduler(module):
    optimizer = sgd(module)
    return {"optimizer": optimizer, "lr_scheduler": halving(optimizer)}


SHAPES = {
    "an optimizer": (sgd, 1, 0),
    "a list": (two, 2, 0),
    "a tuple": (lambda module: tuple(two(module)), 2, 0),
    "a list of one": (lambda module: [sgd(module)], 1, 0),
    "two lists": (lambda module: ((opts := two(module)), [halving(opts[0]), halving(opts[1])]), 2, 2),
    "two lists, dicts": (lambda module: ([opt := sgd(module)], [{"scheduler": halving(opt), "frequency": 2}]), 1, 1),
    "two lists, none": (lambda module: ([sgd(module)], []), 1, 0),
    "a dict": (with_scheduler, 1, 1),
    "a dict alone": (lambda module: {"optimizer": sgd(module)}, 1, 0),
    "a dict of dicts": (
        lambda module: {"optimizer": (opt := sgd(module)), "lr_scheduler": {"scheduler": halving(opt), "name": "half"}},
        1,
        1,
    ),
    "dicts": (lambda module: tuple({"optimizer": o, "lr_scheduler": halving(o)} for o in two(module)), 2, 2),
    "a list and a scheduler": (lambda module: ([opt := sgd(module)], halving(opt)), 1, 1),
    "a list and a dict": (lambda module: ([opt := sgd(module)], {"scheduler": halving(opt)}), 1, 1),
    "None": (lambda module: None, 0, 0),
    "nothing": (lambda module: [], 0, 0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape):
    """Each shape gives its optimizers and schedulers, and trains."""
    configure, optimizers, schedulers = SHAPES[shape]
    _, module, trainer = fit(configure)
    assert len(trainer.optimizers) == optimizers
    assert len(trainer._run.setup.schedulers) == schedulers
    changed = [not torch.equal(a, b) for a, b in zip(module.parameters(), Net().parameters(), strict=True)]
    assert all(changed) if optimizers else not any(changed)
    assert trainer.global_step == 8


WRONG = {
    "a class": (lambda module: SGD, "returned type"),
    "a number": (lambda module: 0.1, "returned float 0.1"),
    "mixed": (lambda module: [sgd(module), 3], "returned a list of SGD, int"),
    "a pair": (lambda module: ((opt := sgd(module)), halving(opt)), "returned a tuple of SGD, StepLR"),
    "unknown key": (lambda module: {"optimizer": sgd(module), "scheduler": 1}, r"keys \['optimizer', 'scheduler'\]"),
    "no optimizer": (lambda module: {"lr_scheduler": None}, r"keys \['lr_scheduler'\]"),
    "unknown setting": (
        lambda module: ([o := sgd(module)], [{"scheduler": halving(o), "every": 3}]),
        r"unknown keys \['every'\]",
    ),
    "no scheduler": (lambda module: ([sgd(module)], [{"interval": "step"}]), "scheduler"),
    "a scheduler's class": (lambda module: ([sgd(module)], [StepLR]), "StepLR'> is not a learning-rate scheduler"),
    "not a scheduler": (lambda module: ([sgd(module)], [5]), "5 is not a learning-rate scheduler"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_shapes(case):
    """Anything else is one error that says what came and lists the accepted shapes."""
    configure, words = WRONG[case]
    with pytest.raises(WrongType, match=words) as caught:
        fit(configure)
    assert "accepted shapes" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"interval": "batch"}, "interval 'batch' must be 'epoch' or 'step'"),
        ({"frequency": 0}, "frequency 0"),
        ({"frequency": True}, "frequency True"),
        ({"frequency": 1.5}, "frequency 1.5"),
    ],
)
def test_wrong_settings(settings, words):
    """A setting of a scheduler outside its range is one error with its value."""
    with pytest.raises(InvalidArgument, match=words):
        fit(lambda module: ([o := sgd(module)], [{"scheduler": halving(o), **settings}]))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5]),
        ({"interval": "epoch"}, [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5]),
        ({"interval": "epoch", "frequency": 2}, [1] * 8),
        ({"interval": "step"}, [0.5**n for n in range(8)]),
        ({"interval": "step", "frequency": 3}, [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]),
        ({"interval": "step", "frequency": 6}, [1, 1, 1, 1, 1, 1, 0.5, 0.5]),  # an epoch has four
    ],
)
def test_intervals(settings, expected):
    """A scheduler steps after each interval that its frequency names."""
    rates, _, _ = fit(lambda module: ([o := sgd(module)], [{"scheduler": halving(o), **settings}]))
    assert rates == pytest.approx([1e-3 * rate for rate in expected])


def test_steps_are_optimizer_steps():
    """The interval "step" counts optimizer steps, not micro-batches."""
    rates, _, _ = fit(
        lambda module: ([o := sgd(module)], [{"scheduler": halving(o), "interval": "step"}]), accumulate_grad_batches=3
    )
    assert rates == pytest.approx([1e-3 * 0.5**n for n in range(4)])


def test_schedules_without_metric(monkeypatch):
    """Schedules that look at no metric read none: reading one would wait for the device."""

    def read(trainer):
        raise AssertionError("read")

    monkeypatch.setattr(Trainer, "callback_metrics", property(read))
    for interval in ("step", "epoch"):
        settings = {"interval": interval}
        rates, _, _ = fit(lambda module, how=settings: ([o := sgd(module)], [{"scheduler": halving(o), **how}]))
        assert min(rates) < 1e-3


@pytest.mark.parametrize("strategy", ["single_device", "ddp_sharded"])
@pytest.mark.parametrize("kind", ["OSS", "ZeroRedundancyOptimizer"])
def test_an_optimizer_that_divides_its_state_is_refused(one_rank, strategy, kind):
    """A sharding optimizer of the user's own is refused by name, before a step, with the strategies that shard."""
    from fairscale.optim import OSS
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def configure(module):
        if kind == "OSS":
            return OSS(module.parameters(), SGD, lr=0.1)
        return ZeroRedundancyOptimizer(module.parameters(), SGD, lr=0.1)

    with pytest.raises(InterlockError, match=rf"Configured configures {kind}, .*\n.* return SGD itself.*ddp_sharded"):
        fit(configure, strategy=strategy)


PLATEAU = {
    "monitor in the scheduler's dict": lambda o: {
        "optimizer": o,
        "lr_scheduler": {"scheduler": ReduceLROnPlateau(o, factor=0.5, patience=0), "monitor": "val_loss"},
    },
    "monitor beside it": lambda o: {
        "optimizer": o,
        "lr_scheduler": ReduceLROnPlateau(o, factor=0.5, patience=0),
        "monitor": "val_loss",
    },
    "two lists": lambda o: (
        [o],
        [{"scheduler": ReduceLROnPlateau(o, factor=0.5, patience=0), "monitor": "val_loss", "reduce_on_plateau": True}],
    ),
}


@pytest.mark.parametrize("shape", PLATEAU)
def test_plateau(shape):
    """ReduceLROnPlateau steps with the epoch's value of its metric: after 3, 2, 5, 6 the rate is halved twice."""
    rates, _, trainer = fit(lambda module: PLATEAU[shape](sgd(module)), validate=True, max_epochs=5)
    assert rates[::4] == pytest.approx([1e-3, 1e-3, 1e-3, 5e-4, 2.5e-4])
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(1.25e-4)


def test_plateau_without_monitor():
    """ReduceLROnPlateau without a metric is an error before training that shows what to write."""
    with pytest.raises(InvalidArgument, match=r'"monitor": "val_loss"'):
        fit(lambda module: ([o := sgd(module)], [ReduceLROnPlateau(o)]))


def test_another_scheduler_can_look_at_a_metric():
    """A scheduler of any class gets the monitored value where its dict says reduce_on_plateau."""

    seen = []

    class Watching(ExponentialLR):
        def step(self, metric=None):
            seen.extend([] if metric is None else [float(metric)])

    def configure(module):
        schedule = {"scheduler": Watching(o := sgd(module), 0.5), "monitor": "val_loss", "reduce_on_plateau": True}
        return {"optimizer": o, "lr_scheduler": schedule}

    fit(configure, validate=True, max_epochs=3)
    assert seen == [3.0, 2.0, 5.0]


def test_a_scheduler_of_no_optimizer_of_the_run_is_refused():
    """A scheduler that was made with an optimizer which is not returned would change nothing, so it is refused."""
    with pytest.raises(InvalidArgument, match="StepLR belongs to a SGD that configure_optimizers does not return"):
        fit(lambda module: ([sgd(module)], [halving(sgd(module))]))


@pytest.mark.parametrize("strict", [True, False])
def test_plateau_without_its_metric(strict):
    """A metric that was not logged is an error that lists those that were, unless strict=False."""

    def configure(module):
        optimizer = sgd(module)
        schedule = {"scheduler": ReduceLROnPlateau(optimizer), "monitor": "val_los", "strict": strict}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    if strict:
        with pytest.raises(InvalidArgument, match=r"'val_los', which was not logged; logged: val_loss"):
            fit(configure, validate=True)
    else:
        rates, _, _ = fit(configure, validate=True)
        assert set(rates) == {1e-3}


SCHEDULERS = {
    "StepLR": lambda o: StepLR(o, 2),
    "MultiStepLR": lambda o: MultiStepLR(o, [1, 3]),
    "ExponentialLR": lambda o: ExponentialLR(o, 0.9),
    "LambdaLR": lambda o: LambdaLR(o, lambda step: 1 / (step + 1)),
    "OneCycleLR": lambda o: OneCycleLR(o, max_lr=2e-3, total_steps=50),
    "CosineAnnealingWarmRestarts": lambda o: CosineAnnealingWarmRestarts(o, 3),
    "SequentialLR": lambda o: SequentialLR(o, [LinearLR(o, total_iters=3), ExponentialLR(o, 0.9)], milestones=[3]),
    "ChainedScheduler": lambda o: ChainedScheduler([ConstantLR(o, total_iters=2), ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize("interval", ["step", "epoch"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers(name, interval, tmp_path):
    """Each scheduler of torch gives the rates of a loop by hand, also when training goes on from a checkpoint."""

    def configure(module):
        optimizer = sgd(module)
        return [optimizer], [{"scheduler": SCHEDULERS[name](optimizer), "interval": interval}]

    optimizer = sgd(Net())
    scheduler, expected = SCHEDULERS[name](optimizer), []
    for _ in range(4):
        for _ in range(4):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if interval == "step":
                scheduler.step()
        if interval == "epoch":
            scheduler.step()
    rates, _, trainer = fit(configure)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    rest = Rates()
    resumed = make_trainer(max_epochs=4, callbacks=rest)
    resumed.fit(Configured(configure), loader(), ckpt_path=tmp_path / "half.ckpt")
    assert rates + rest.rates == pytest.approx(expected)

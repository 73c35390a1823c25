"""The search for a batch size."""

import pytest
import torch
from support.hungry import TEXTS, Hungry, HungryData, everything
from support.nets import loader, quiet_trainer
from torch.utils.data import DataLoader, IterableDataset

from core import ModelCheckpoint
from core.callbacks import BatchSizeFinder
from core.errors import InterlockError, InvalidArgument
from core.loggers import ConsoleLogger
from core.tuner import Tuner
from core.tuner.batch_size import largest


def search(limit, **settings):
    """Run the search against a memory that takes sizes up to ``limit``; return the answer and what was tried."""
    tried = []

    def fits(size):
        tried.append(size)
        return size <= limit

    arguments = {"mode": "power", "start": 2, "max_trials": 25, **settings}
    return largest(fits, **arguments), tried


@pytest.mark.parametrize(
    ("limit", "settings", "found", "tried"),
    [
        (40, {}, 32, [2, 4, 8, 16, 32, 64]),
        (40, {"mode": "binsearch"}, 40, [2, 4, 8, 16, 32, 64, 48, 40, 44, 42, 41]),
        (3, {"start": 16}, 2, [16, 8, 4, 2]),
        (3, {"start": 16, "mode": "binsearch"}, 3, [16, 8, 4, 2, 3]),
        (10**9, {"max_trials": 4}, 16, [2, 4, 8, 16]),
        (10**9, {"most": 100}, 100, [2, 4, 8, 16, 32, 64, 100]),
        (10**9, {"most": 100, "start": 300}, 100, [100]),
        (10**9, {"start": 1, "most": 1}, 1, [1]),
        (40, {"mode": "binsearch", "max_trials": 8}, 40, [2, 4, 8, 16, 32, 64, 48, 40]),
    ],
    ids=str,
)
def test_sizes_that_are_tried(limit, settings, found, tried):
    """Sizes double until one does not fit, then halve the distance if asked; the answer was tried and fits."""
    assert search(limit, **settings) == (found, tried)


def test_nothing_fits():
    """Where not even one sample fits that is said, and where the trials run out too."""
    with pytest.raises(InterlockError, match="not even a batch size of 1"):
        search(0)
    with pytest.raises(InterlockError, match="no batch size fits into memory, down to 8 in 2 trials"):
        search(0, start=16, max_trials=2)


@pytest.mark.parametrize(
    ("error", "mode", "found"), [*((text, "power", 32) for text in TEXTS), ("memory", "binsearch", 40)]
)
def test_found_size_is_written_back(mode, found, error):
    """However running out of memory shows, the size is found and stands in the module and its hyperparameters."""
    module = Hungry(room=40, error=error)
    assert Tuner(quiet_trainer()).scale_batch_size(module, mode=mode, init_val=16) == found
    assert (module.batch_size, module.hparams.batch_size) == (found, found)


@pytest.mark.parametrize("kept", [False, True])
def test_batch_size_of_a_data_module(kept):
    """The size is found in the data module's attribute or hyperparameters, wherever the data module is given."""
    for arguments in ({"datamodule": HungryData(kept=kept)}, {"train_dataloaders": HungryData(kept=kept)}):
        (data,) = arguments.values()
        module = Hungry(room=60)
        del module.batch_size, module.hparams["batch_size"]
        assert Tuner(quiet_trainer()).scale_batch_size(module, **arguments) == 32
        assert (data.hparams if kept else vars(data))["batch_size"] == 32


def test_every_trial_takes_its_steps():
    """Each size that fits takes as many steps as asked, over the data again where it is short."""
    sizes = []

    class Noted(Hungry):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            sizes.append(batch[0].shape[0])

    assert Tuner(quiet_trainer()).scale_batch_size(Noted(room=10, samples=11), steps_per_trial=5) == 8
    assert sizes == [*[2] * 5, *[4, 4, 3, 4, 4], *[8, 3, 8, 3, 8]]


def test_no_more_than_the_data():
    """A batch larger than the data makes no difference: the search ends with the size of the data."""
    assert Tuner(quiet_trainer()).scale_batch_size(Hungry(room=10**6, samples=50)) == 50


def test_a_limit_and_a_margin():
    """max_val is the largest size that is tried; margin takes a part off what binsearch found, and off nothing else."""
    tuner = Tuner(quiet_trainer())
    assert tuner.scale_batch_size(Hungry(room=10**6, samples=500), max_val=24) == 24
    assert tuner.scale_batch_size(Hungry(room=40), mode="binsearch", margin=0.25) == 30
    assert tuner.scale_batch_size(Hungry(room=40), margin=0.25) == 32
    module = Hungry(room=40)
    finder = BatchSizeFinder(mode="binsearch", margin=0.1, max_val=20)
    quiet_trainer(callbacks=[finder], limit_train_batches=1).fit(module)
    assert (finder.optimal_batch_size, module.batch_size, module.notes["sizes"]) == (18, 18, [18])
    for wrong in ({"margin": 1.0}, {"margin": -0.1}, {"max_val": 0}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            tuner.scale_batch_size(Hungry(room=4), **wrong)


def test_data_of_unknown_length():
    """Where the data does not say its length the search goes on until memory or trials run out."""

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.ones(10_000, 1, 4))

    class Streaming(Hungry):
        def train_dataloader(self):
            return DataLoader(Stream(), self.batch_size, collate_fn=lambda items: [torch.cat(items)])

    assert Tuner(quiet_trainer()).scale_batch_size(Streaming(room=100)) == 64
    assert Tuner(quiet_trainer()).scale_batch_size(Streaming(room=10**6), max_trials=3) == 8


@pytest.mark.parametrize("method", ["validate", "test", "predict"])
def test_other_methods(method):
    """Evaluation is tried with its own steps and loaders."""

    class Evaluated(Hungry):
        def val_dataloader(self):
            return self.data()

        test_dataloader = predict_dataloader = val_dataloader

        def test_step(self, batch, batch_idx):
            self.loss(batch)

        predict_step = test_step

    module = Evaluated(room=40)
    before = everything(trainer := quiet_trainer(), module)
    assert Tuner(trainer).scale_batch_size(module, method=method, init_val=8) == 32
    module.batch_size = module.hparams["batch_size"] = 2
    assert everything(trainer, module) == before


def settings_for_traces(tmp_path):
    return {
        "callbacks": [ModelCheckpoint(tmp_path / "saved")],
        "enable_checkpointing": True,
        "logger": ConsoleLogger(),
        "default_root_dir": tmp_path,
    }


@pytest.mark.parametrize(
    ("precision", "mode", "found"),
    [("32-true", "binsearch", 40), ("bf16-true", "power", 32), ("16-mixed", "power", 32)],
)
def test_no_trace(tmp_path, monkeypatch, precision, mode, found):
    """Nothing but the batch size is other than before, no file is left, and a second search finds the same."""
    monkeypatch.chdir(tmp_path)
    module = Hungry(room=40)
    trainer = quiet_trainer(precision=precision, **settings_for_traces(tmp_path))
    before = everything(trainer, module)
    assert [Tuner(trainer).scale_batch_size(module, mode=mode) for _ in range(2)] == [found, found]
    module.batch_size = module.hparams["batch_size"] = 2
    assert everything(trainer, module) == before
    assert list(tmp_path.iterdir()) == []


def test_no_trace_of_a_failed_search(tmp_path):
    """An error that is not about memory comes out as it is, and everything is as before, the batch size too."""

    class Failing(Hungry):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            if batch[0].shape[0] == 8:
                raise OSError("disk on fire")

    module = Failing()
    trainer = quiet_trainer(**settings_for_traces(tmp_path))
    before = everything(trainer, module)
    with pytest.raises(OSError, match="disk on fire"):
        Tuner(trainer).scale_batch_size(module)
    assert everything(trainer, module) == before


def test_between_two_fits(tmp_path):
    """A search between two fits changes nothing about the second."""

    def weights(between):
        torch.manual_seed(7)
        module = Hungry(samples=20)
        trainer = quiet_trainer(default_root_dir=tmp_path)
        trainer.fit(module)
        if between:
            assert Tuner(trainer).scale_batch_size(module, steps_per_trial=2) == 20
            module.batch_size = 2
            assert trainer.optimizers  # the run of the fit is still there to look at
        trainer.max_epochs = 2
        trainer.fit(module)
        assert trainer.global_step == 20
        return module.state_dict()

    plain, searched = weights(False), weights(True)
    assert all(torch.equal(plain[name], searched[name]) for name in plain)


def test_finder_goes_on_with_what_it_found(tmp_path):
    """BatchSizeFinder trains with the size it found, from the weights and random numbers that were there."""
    finder = BatchSizeFinder(mode="binsearch", init_val=38)
    seen = []

    class Validated(Hungry):
        val_dataloader = Hungry.data

        def validation_step(self, batch, batch_idx):
            seen.append(batch[0].shape[0])

    torch.manual_seed(7)
    module = Validated(room=40)
    trainer = quiet_trainer(callbacks=[finder], limit_train_batches=3, limit_val_batches=1, num_sanity_val_steps=0)
    trainer.fit(module)
    assert seen == [40]
    assert (finder.optimal_batch_size, module.batch_size) == (40, 40)
    assert module.notes["sizes"] == [40, 40, 40]
    torch.manual_seed(7)
    plain = Hungry(room=40, batch_size=40)
    quiet_trainer(limit_train_batches=3).fit(plain)
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, m: t.scale_batch_size(m, loader()), "was given a DataLoader, whose batch size cannot be changed"),
        (lambda t, m: t.scale_batch_size(m, batch_arg_name="size"), "found no 'size' in Hungry and its hparams"),
        (lambda t, m: t.scale_batch_size(m, mode="cubic"), "mode='cubic' must be one of"),
        (lambda t, m: t.scale_batch_size(m, steps_per_trial=0), "steps_per_trial=0"),
        (lambda t, m: t.scale_batch_size(m, init_val=0), "init_val=0"),
        (lambda t, m: t.scale_batch_size(m, method="train"), "method='train'"),
    ],
)
def test_refused(call, message):
    """What cannot work is refused before anything runs, with a hint."""
    module = Hungry()
    with pytest.raises(InvalidArgument, match=message):
        call(Tuner(quiet_trainer()), module)
    assert module.notes["sizes"] == []


def test_loader_that_ignores_the_attribute():
    """A loader whose batch size does not follow the attribute is told, since every size would seem to fit."""

    class Fixed(Hungry):
        def train_dataloader(self):
            return loader(size=4)

    with pytest.raises(InvalidArgument, match=r"module\.batch_size is 2, but the loader has a batch size of 4"):
        Tuner(quiet_trainer()).scale_batch_size(Fixed())


def test_fast_dev_run():
    """Under fast_dev_run there is nothing to find, and a warning says so."""
    with pytest.warns(UserWarning, match="does nothing under fast_dev_run"):
        assert Tuner(quiet_trainer(fast_dev_run=True)).scale_batch_size(Hungry()) is None

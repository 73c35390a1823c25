"""Our ModelCheckpoint and EarlyStopping keep and stop what Lightning's of the same name do."""

from pathlib import Path

import pytest
import torch
from support.nets import quiet_trainer
from support.peer import QUIET, Line, pl, rows

from core import callbacks as ours

pytestmark = pytest.mark.filterwarnings("ignore")
SCORES = [5.0, 3.0, 4.0, 2.0, 6.0, 6.0, 6.0, 6.0, 6.0]


class Scored(Line):
    """Gets a score in each epoch, whatever it does."""

    def validation_step(self, batch, batch_idx):
        self.log("val", SCORES[self.current_epoch])

    def on_train_epoch_end(self):
        self.log("epoch_end", float(self.current_epoch))


def outcomes(name, folder, look, options, **settings):
    """Fit with the callback of each side, and return what ``look`` sees of both."""
    for side, make, package in (("ours", quiet_trainer, ours), ("theirs", pl.Trainer, pl.callbacks)):
        place = folder / side
        given = {"dirpath": str(place / "kept"), **options} if name == "ModelCheckpoint" else options
        callback = getattr(package, name)(**given)
        common = {**dict.fromkeys(QUIET, False), "accelerator": "cpu", "max_epochs": 6, "callbacks": [callback]}
        common |= {"enable_checkpointing": name == "ModelCheckpoint", "default_root_dir": place}
        trainer = make(**{**common, **settings})
        torch.manual_seed(5)
        trainer.fit(Scored(), rows(), rows(4))
        yield look(callback, trainer, place)


def kept(callback, trainer, place):
    """Return the files, which of them is the best, and its score."""
    files = sorted(path.relative_to(place).as_posix() for path in place.rglob("*.ckpt"))
    score = callback.best_model_score
    return files, Path(callback.best_model_path).name, None if score is None else float(score)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"monitor": "val"},
        {"monitor": "val", "save_top_k": 2},
        {"monitor": "val", "mode": "max", "save_top_k": 2},
        {"save_top_k": -1},
        {"monitor": "val", "save_top_k": -1},
        {"save_top_k": 0},
        {"save_last": True},
        {"save_last": True, "monitor": "val"},
        {"save_last": "link", "monitor": "val"},
        {"every_n_epochs": 2, "save_top_k": -1},
        {"every_n_train_steps": 3, "save_top_k": -1},
        {"every_n_train_steps": 3},
        {"monitor": "val", "filename": "{epoch}-{val:.2f}"},
        {"monitor": "val", "filename": "best"},
        {"monitor": "val", "filename": "x-{epoch:02d}-{val:.1f}", "auto_insert_metric_name": False, "save_top_k": 3},
        {"monitor": "epoch_end", "save_top_k": 2, "mode": "max"},
        {"monitor": "val", "save_on_train_epoch_end": True},
        {"monitor": "loss", "every_n_train_steps": 2, "save_top_k": 2},
        {"monitor": "val", "enable_version_counter": False, "filename": "b", "save_top_k": 2},
    ],
    ids=str,
)
def test_checkpoints(tmp_path, options):
    """The same files are there at the end, and the same one is the best."""
    mine, theirs = outcomes("ModelCheckpoint", tmp_path, kept, options)
    assert mine == theirs


@pytest.mark.parametrize(
    "settings", [{"val_check_interval": 2}, {"check_val_every_n_epoch": 2}, {"accumulate_grad_batches": 2}], ids=str
)
def test_moments_of_checkpoints(tmp_path, settings):
    """Validation inside epochs, or between some of them, decides when there is something to keep."""
    mine, theirs = outcomes("ModelCheckpoint", tmp_path, kept, {"monitor": "val", "save_top_k": -1}, **settings)
    assert mine == theirs


def stopped(callback, trainer, place):
    """Return where training ended, and what was counted."""
    return trainer.current_epoch, callback.stopped_epoch, callback.wait_count, float(callback.best_score)


@pytest.mark.parametrize(
    "options",
    [
        {"monitor": "val"},
        {"monitor": "val", "patience": 1},
        {"monitor": "val", "mode": "max", "patience": 2},
        {"monitor": "val", "min_delta": 1.5, "patience": 2},
        {"monitor": "val", "stopping_threshold": 3.5},
        {"monitor": "val", "divergence_threshold": 5.5, "patience": 9},
        {"monitor": "epoch_end", "mode": "max", "patience": 2, "min_delta": 2},
        {"monitor": "val", "check_on_train_epoch_end": True, "patience": 1},
        {"monitor": "nobody", "strict": False},
    ],
    ids=str,
)
def test_stopping(tmp_path, options):
    """Training ends in the same epoch, with the same count and best score."""
    mine, theirs = outcomes("EarlyStopping", tmp_path, stopped, options, max_epochs=9)
    assert mine == theirs

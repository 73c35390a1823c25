"""When EarlyStopping ends training, and what it says about it."""

import math

import pytest
import torch
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core import ModelCheckpoint
from core.callbacks import EarlyStopping
from core.errors import InvalidArgument


def stopped(scores, ckpt_path=None, more=(), trainer_settings=None, **settings):
    """Train at most as many epochs as there are scores; return the callback and the Trainer."""
    stopping = EarlyStopping("val/score", **settings)
    arguments = {"max_epochs": len(scores), "num_sanity_val_steps": 0, **(trainer_settings or {})}
    trainer = quiet_trainer(callbacks=[stopping, *more], enable_checkpointing=bool(more), **arguments)
    data = loader()
    trainer.fit(Scored(scores), data, data, ckpt_path=ckpt_path)
    return stopping, trainer


@pytest.mark.parametrize(
    ("scores", "settings", "epochs", "reason"),
    [
        ([5, 4, 4, 4, 3], {"patience": 2}, 4, "did not improve 2 times; the best was 4"),
        ([5, 4, 3, 2, 1], {"patience": 2}, 5, ""),
        ([1, 2, 2, 2, 3], {"patience": 2, "mode": "max"}, 4, "did not improve 2 times; the best was 2"),
        ([5, 4.9, 4.8, 4.7, 4], {"patience": 2, "min_delta": 0.5}, 3, "did not improve 2 times; the best was 5"),
        ([1, 1.4, 1.6, 1.8, 2.2], {"patience": 2, "min_delta": 0.5, "mode": "max"}, 5, ""),
        ([5, 5, 5], {"patience": 0}, 2, "did not improve 1 times"),
        ([5, 0.5, 4], {"stopping_threshold": 1.0}, 2, "is better than the stopping threshold 1.0"),
        ([5, 50, 4], {"divergence_threshold": 10.0}, 2, "is worse than the divergence threshold 10.0"),
        ([5, 50, 4], {"divergence_threshold": 10.0, "mode": "max"}, 1, "is worse than the divergence threshold"),
        ([5, math.nan, 4], {}, 2, "nan is not finite; the best was 5"),
        ([5, math.inf, 4], {"check_finite": False}, 3, ""),
    ],
    ids=str,
)
def test_moment_and_reason(scores, settings, epochs, reason):
    """Training ends in the epoch that the arguments say, for the reason that they say."""
    stopping, trainer = stopped(scores, **settings)
    assert trainer.current_epoch == epochs
    assert reason in stopping.stopping_reason
    assert stopping.stopped_epoch == (epochs - 1 if reason else 0)
    assert trainer.early_stopping_callback is stopping


def test_state_goes_on_after_a_resume(tmp_path):
    """What was counted before a resume counts after it."""
    saving = ModelCheckpoint(tmp_path, save_last=True)
    stopped([5, 6], patience=3, more=[saving])
    stopping, trainer = stopped(
        [7, 7, 7], ckpt_path=saving.last_model_path, patience=3, more=[ModelCheckpoint(tmp_path)]
    )
    assert (trainer.current_epoch, float(stopping.best_score), stopping.wait_count) == (3, 5.0, 2)
    stopping, trainer = stopped([7] * 9, ckpt_path=saving.last_model_path, patience=3, more=[ModelCheckpoint(tmp_path)])
    assert (trainer.current_epoch, stopping.wait_count) == (4, 3)


def test_validation_inside_epochs_is_the_moment():
    """Where validation runs more often than once per epoch each of them counts; True asks for epochs."""
    settings = {"val_check_interval": 1, "max_epochs": 4}
    assert stopped([5, 6, 6, 6], patience=2, trainer_settings=settings)[1].global_step == 3
    only_epochs = stopped([5, 6, 6, 6], patience=2, check_on_train_epoch_end=True, trainer_settings=settings)
    assert only_epochs[1].current_epoch == 3


def test_minimum_is_kept():
    """min_epochs goes before the wish to stop."""
    assert stopped([1, 2, 3, 4, 5, 6], patience=1, trainer_settings={"min_epochs": 4})[1].current_epoch == 4


def test_unknown_metric():
    """A metric that was not logged is an error with the names that were; strict=False warns and goes on."""
    trainer = quiet_trainer(callbacks=[EarlyStopping("typo")])
    with pytest.raises(InvalidArgument, match=r"monitors 'typo', which was not logged; logged: loss"):
        trainer.fit(Scored(), loader())
    trainer = quiet_trainer(callbacks=[EarlyStopping("typo", strict=False)], max_epochs=2)
    with pytest.warns(UserWarning, match="monitors 'typo'"):
        trainer.fit(Scored(), loader())
    assert trainer.current_epoch == 2


def test_value_of_the_modules_own_hook_counts():
    """A value that the module logs at the end of an epoch is looked at in that epoch."""

    class Late(Scored):
        def on_train_epoch_end(self):
            self.log("late", torch.tensor(float(self.current_epoch)))

    stopping = EarlyStopping("late", stopping_threshold=1.5, mode="max")
    trainer = quiet_trainer(callbacks=[stopping], max_epochs=9)
    trainer.fit(Late(), loader())
    assert trainer.current_epoch == 3


def test_validate_alone_does_not_count():
    """Trainer.validate after a fit changes nothing."""
    stopping, trainer = stopped([3, 2], trainer_settings={"val_check_interval": 2})
    before = stopping.state_dict()
    trainer.validate(Scored([9]), loader(), verbose=False)
    assert stopping.state_dict() == before


def test_it_speaks_when_asked(capsys):
    """verbose says on standard error when the metric improves and why training ends."""
    stopped([5, 4, 4], patience=1, verbose=True)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "epoch 0: val/score improved to 5",
        "epoch 1: val/score improved to 4",
        "epoch 2: val/score did not improve 1 times; the best was 4",
    ]


@pytest.mark.parametrize("settings", [{"mode": "low"}, {"patience": -1}, {"patience": 1.5}], ids=str)
def test_refused_arguments(settings):
    """A value outside its range is refused at once."""
    with pytest.raises(InvalidArgument):
        EarlyStopping("loss", **settings)

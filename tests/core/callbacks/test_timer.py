"""Timer, with a clock that moves on by one second at each look."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core import ModelCheckpoint
from core.callbacks import Timer
from core.errors import InvalidArgument


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    now = iter(range(100_000))
    monkeypatch.setattr("core.callbacks.timer.time", SimpleNamespace(monotonic=lambda: float(next(now))))


def fit(timer, more=(), **settings):
    ckpt_path = settings.pop("ckpt_path", None)
    trainer = quiet_trainer(callbacks=[timer, *more], enable_checkpointing=bool(more), **settings)
    trainer.fit(Scored(), loader(), loader(), ckpt_path=ckpt_path)
    return trainer


@pytest.mark.parametrize("duration", [timedelta(seconds=3), {"seconds": 3}, "00:00:00:03"], ids=str)
def test_steps_end_when_the_time_is_up(duration, capsys):
    """Training ends after the step in which the time runs out, and the reason is said."""
    trainer = fit(Timer(duration), max_epochs=9)
    assert trainer.global_step == 3
    assert capsys.readouterr().err == "the time for training, 0:00:03, is up at step 3\n"


def test_epochs_are_finished_when_asked(capsys):
    """With interval="epoch" the epoch is finished first; verbose=False says nothing."""
    assert fit(Timer({"seconds": 1}, interval="epoch", verbose=False), max_epochs=9).current_epoch == 1
    assert capsys.readouterr().err == ""


def test_time_before_a_resume_counts(tmp_path):
    """The time that a resumed run has used already counts."""
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1)
    fit(Timer({"seconds": 30}), max_epochs=1, more=[saving])
    timer = Timer({"seconds": 6})
    ckpt_path = tmp_path / "epoch=0-step=2.ckpt"
    trainer = fit(timer, max_epochs=9, ckpt_path=ckpt_path, more=[ModelCheckpoint(tmp_path / "more")])
    assert 2 < trainer.global_step < 6
    assert timer.time_remaining() <= 0


def test_what_it_can_be_asked():
    """Start, end and elapsed time of each stage can be asked for; a stage that was not run has none."""
    timer = Timer()
    fit(timer)
    assert timer.time_elapsed() == timer.end_time() - timer.start_time() > 0
    assert timer.time_elapsed("validate") > 0
    assert (timer.start_time("test"), timer.time_elapsed("test"), timer.time_remaining()) == (None, 0.0, None)


def test_refused_interval():
    """An interval that is none is refused at once."""
    with pytest.raises(InvalidArgument):
        Timer(interval="batch")

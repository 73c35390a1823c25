"""When ModelCheckpoint saves, and which files it keeps."""

import math
import os
import shutil
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core import Callback, ModelCheckpoint
from core.checkpoint import read_checkpoint
from core.errors import InterlockError, InvalidArgument


def trained(folder, scores=(), batches=4, module=None, ckpt_path=None, callbacks=(), **settings):
    """Train with a ModelCheckpoint in ``folder`` and return it; keywords in capitals go to the Trainer."""
    own = {name: value for name, value in settings.items() if name.islower()}
    rest = {name.lower(): value for name, value in settings.items() if name.isupper()}
    checkpoint = ModelCheckpoint(folder, **own)
    trainer = quiet_trainer(
        callbacks=[checkpoint, *callbacks], enable_checkpointing=True, **{"num_sanity_val_steps": 0, **rest}
    )
    data = loader(batches)
    trainer.fit(module or Scored(scores), data, data, ckpt_path=ckpt_path)
    return checkpoint


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_best_are_kept(tmp_path):
    """Of five epochs the two with the lowest scores are kept, and everything that is read off agrees with it."""
    checkpoint = trained(tmp_path, [0.5, 0.2, 0.9, 0.3, 0.4], monitor="val/score", save_top_k=2, MAX_EPOCHS=5)
    assert names(tmp_path) == ["epoch=1-step=8.ckpt", "epoch=3-step=16.ckpt"]
    best, second = (str(tmp_path / name) for name in names(tmp_path))
    assert checkpoint.best_model_path == best
    assert checkpoint.best_model_score == pytest.approx(0.2)
    assert checkpoint.best_model_score.item() == pytest.approx(0.2)
    assert (checkpoint.kth_best_model_path, float(checkpoint.kth_value)) == (second, pytest.approx(0.3))
    assert checkpoint.best_k_models == {best: pytest.approx(0.2), second: pytest.approx(0.3)}
    assert checkpoint.current_score == pytest.approx(0.4)
    assert read_checkpoint(best)["epoch"] == 1


def test_mode_max(tmp_path):
    """With mode "max" the highest score wins."""
    checkpoint = trained(tmp_path, [0.5, 0.9, 0.2], monitor="val/score", mode="max", MAX_EPOCHS=3)
    assert names(tmp_path) == ["epoch=1-step=8.ckpt"]
    assert checkpoint.best_model_score == pytest.approx(0.9)


@pytest.mark.parametrize(("top_k", "kept"), [(-1, [0, 1, 2]), (0, []), (1, [2]), (2, [1, 2])])
def test_without_monitor_the_newest_are_kept(tmp_path, top_k, kept):
    """Without a monitor save_top_k counts the newest; -1 keeps all, 0 none."""
    trained(tmp_path, save_top_k=top_k, MAX_EPOCHS=3)
    assert names(tmp_path) == [f"epoch={epoch}-step={4 * (epoch + 1)}.ckpt" for epoch in kept]


def test_nan_is_the_worst_score(tmp_path):
    """A score that is NaN is kept while there is room, and gives way to any number."""
    checkpoint = trained(tmp_path, [math.nan, 7.0, math.nan], monitor="val/score", MAX_EPOCHS=3)
    assert names(tmp_path) == ["epoch=1-step=8.ckpt"]
    assert checkpoint.best_model_score == 7.0


def test_every_n_train_steps(tmp_path):
    """Every n-th optimizer step is saved, whatever the epoch and the window of accumulation."""
    trained(tmp_path, every_n_train_steps=3, save_top_k=-1, batches=8, MAX_EPOCHS=2, ACCUMULATE_GRAD_BATCHES=2)
    assert names(tmp_path) == ["epoch=0-step=3.ckpt", "epoch=1-step=6.ckpt"]


def test_every_n_epochs(tmp_path):
    """The end of every n-th epoch is saved."""
    trained(tmp_path, every_n_epochs=2, save_top_k=-1, MAX_EPOCHS=5)
    assert names(tmp_path) == ["epoch=1-step=8.ckpt", "epoch=3-step=16.ckpt"]


def test_train_time_interval(tmp_path, monkeypatch):
    """The first step after each interval is saved."""
    now = iter(range(10_000))
    clock = SimpleNamespace(monotonic=lambda: float(next(now)))
    monkeypatch.setattr("core.callbacks.model_checkpoint.time", clock)
    trained(tmp_path, train_time_interval=timedelta(seconds=3), save_top_k=-1, batches=9)
    # looking takes a second and so does saving
    assert names(tmp_path) == ["epoch=0-step=3.ckpt", "epoch=0-step=6.ckpt", "epoch=0-step=9.ckpt"]


def test_save_last_is_as_new_as_possible(tmp_path):
    """save_last follows every epoch, also those that are not among the best."""
    checkpoint = trained(tmp_path, [1.0, 2.0, 3.0], monitor="val/score", save_last=True, MAX_EPOCHS=3)
    assert names(tmp_path) == ["epoch=0-step=4.ckpt", "last.ckpt"]
    assert read_checkpoint(tmp_path / "last.ckpt")["global_step"] == 12
    assert checkpoint.last_model_path == str(tmp_path / "last.ckpt")


def test_save_last_as_link(tmp_path):
    """With save_last="link" last.ckpt points to the newest file that is kept, relative to its folder."""
    trained(tmp_path, [3.0, 2.0, 9.0], monitor="val/score", save_last="link", MAX_EPOCHS=3)
    assert names(tmp_path) == ["epoch=1-step=8.ckpt", "last.ckpt"]
    assert os.readlink(tmp_path / "last.ckpt") == "epoch=1-step=8.ckpt"
    assert read_checkpoint(tmp_path / "last.ckpt")["epoch"] == 1


def test_saved_state_knows_its_own_file(tmp_path):
    """The state inside a checkpoint names that very file, so that what resumes from it goes on with it."""
    trained(tmp_path, [0.5], monitor="val/score", save_last=True)
    path = str(tmp_path / "epoch=0-step=4.ckpt")
    (state,) = (s for key, s in read_checkpoint(path)["callbacks"].items() if key.startswith("ModelCheckpoint"))
    assert state["scores"] == {path: pytest.approx(0.5)}
    assert state["best_model_path"] == path
    assert state["last_model_path"] == str(tmp_path / "last.ckpt")


def test_resumed_training_goes_on_with_the_best(tmp_path):
    """What resumes in the same folder ranks new files with the old ones and writes over its own last file."""
    keep = {"monitor": "val/score", "save_top_k": 2, "save_last": True}
    trained(tmp_path, [0.5, 0.1, 0.4], **keep, MAX_EPOCHS=3)
    checkpoint = trained(tmp_path, [0.3, 0.9], **keep, MAX_EPOCHS=5, ckpt_path=tmp_path / "last.ckpt")
    assert names(tmp_path) == ["epoch=1-step=8.ckpt", "epoch=3-step=16.ckpt", "last.ckpt"]
    assert checkpoint.best_model_score == pytest.approx(0.1)
    assert read_checkpoint(tmp_path / "last.ckpt")["global_step"] == 20


def test_resumed_in_another_folder(tmp_path):
    """What resumes into another folder leaves the files of the first one alone and ranks anew."""
    old, new = tmp_path / "old", tmp_path / "new"
    trained(old, [0.1], monitor="val/score")
    checkpoint = trained(new, [0.5], monitor="val/score", MAX_EPOCHS=2, ckpt_path=old / "epoch=0-step=4.ckpt")
    assert names(tmp_path) == ["new/epoch=1-step=8.ckpt", "old/epoch=0-step=4.ckpt"]
    assert checkpoint.best_model_score == pytest.approx(0.5)


def test_the_file_that_was_resumed_from_stays(tmp_path):
    """A file that the user resumed from is not removed when it is no longer among the best."""
    trained(tmp_path, [0.5], monitor="val/score")
    first = tmp_path / "epoch=0-step=4.ckpt"
    checkpoint = trained(tmp_path, [0.2], monitor="val/score", MAX_EPOCHS=2, ckpt_path=first)
    assert names(tmp_path) == ["epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt"]
    assert list(checkpoint.best_k_models) == [str(tmp_path / "epoch=1-step=8.ckpt")]


def test_a_file_that_is_gone_is_not_counted(tmp_path):
    """A file that somebody removed meanwhile takes no place among the best."""
    keep = {"monitor": "val/score", "save_last": True}
    trained(tmp_path, [0.1], **keep)
    (tmp_path / "epoch=0-step=4.ckpt").unlink()
    checkpoint = trained(tmp_path, [0.5], **keep, MAX_EPOCHS=2, ckpt_path=tmp_path / "last.ckpt")
    assert checkpoint.best_model_path == str(tmp_path / "epoch=1-step=8.ckpt")


def test_versions_where_a_name_is_taken(tmp_path):
    """A name that is taken gets -v1, -v2 and so on; enable_version_counter=False writes over it."""
    for _ in range(3):
        trained(tmp_path, filename="model", save_last=True)
    assert names(tmp_path) == [
        *("last-v1.ckpt", "last-v2.ckpt", "last.ckpt"),
        *("model-v1.ckpt", "model-v2.ckpt", "model.ckpt"),
    ]
    trained(tmp_path, filename="model", enable_version_counter=False)
    assert len(names(tmp_path)) == 6


@pytest.mark.parametrize(("top_k", "left"), [(1, ["best.ckpt"]), (2, ["best-v1.ckpt", "best.ckpt"])])
def test_a_better_one_takes_the_name_of_what_it_puts_out(tmp_path, top_k, left):
    """A name that does not change is the name of the best file however often a better one comes."""
    scores = [0.5, 0.4, 0.3, 0.6, 0.2, 0.1]
    checkpoint = trained(tmp_path, scores, filename="best", monitor="val/score", save_top_k=top_k, MAX_EPOCHS=6)
    assert names(tmp_path) == left
    assert read_checkpoint(checkpoint.best_model_path)["epoch"] == 5


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"filename": "{epoch:02d}-{val/score:.2f}"}, "epoch=00-val_score=0.12.ckpt"),
        ({"filename": "{epoch:02d}-{val/score:.2f}", "auto_insert_metric_name": False}, "00-0.12.ckpt"),
        ({"filename": "runs/{step}"}, "runs/step=4.ckpt"),
        ({"filename": "{val/score:d}"}, "val_score=0.ckpt"),
        ({"filename": "plain"}, "plain.ckpt"),
    ],
)
def test_filenames(tmp_path, settings, name):
    """Values stand in the name as it says; a slash in a metric's name opens no folder, one outside braces does."""
    trained(tmp_path, [0.123], **settings)
    assert names(tmp_path) == [name]


def test_filename_with_an_unknown_value(tmp_path):
    """A name that asks for what was not logged says nan, and a warning says what there is."""
    with pytest.warns(UserWarning, match=r"names typo, not known so far; known: epoch, loss, step, val/score"):
        trained(tmp_path, [0.1], filename="{typo:.2f}")
    assert names(tmp_path) == ["typo=nan.ckpt"]


def test_unknown_monitor(tmp_path):
    """A monitor that was not logged ends training with the names that were."""
    with pytest.raises(InvalidArgument, match=r"monitors 'val_los', which was not logged; logged: loss, val/score"):
        trained(tmp_path, [0.1], monitor="val_los")


def test_step_trigger_waits_for_the_score_of_its_weights(tmp_path):
    """A step whose validation comes right after it is saved when that is over, with the score of these weights."""
    keep = {"monitor": "val/score", "every_n_train_steps": 2, "save_top_k": -1, "filename": "{step}-{val/score}"}
    trained(tmp_path, [5.0, 6.0, 7.0], **keep, VAL_CHECK_INTERVAL=2, batches=6)
    assert names(tmp_path) == [f"step={2 * n}-val_score={score}.ckpt" for n, score in enumerate([5.0, 6.0, 7.0], 1)]


def test_step_trigger_before_the_first_validation(tmp_path):
    """A step before the first validation is saved when that is over; later ones take the score there is."""
    keep = {"monitor": "val/score", "every_n_train_steps": 3, "save_top_k": -1}
    checkpoint = trained(tmp_path, [5.0, 6.0], **keep, batches=4, MAX_EPOCHS=2)
    assert names(tmp_path) == ["epoch=0-step=4.ckpt", "epoch=1-step=6.ckpt"]
    assert [float(score) for score in checkpoint.best_k_models.values()] == [5.0, 5.0]


def test_validation_inside_epochs_is_the_moment(tmp_path):
    """Where validation runs more often than once per epoch each of them is a moment to save; True asks for epochs."""
    trained(tmp_path / "a", [3.0, 2.0], monitor="val/score", save_top_k=-1, VAL_CHECK_INTERVAL=0.5)
    assert names(tmp_path / "a") == ["epoch=0-step=2.ckpt", "epoch=0-step=4.ckpt"]
    always = {"monitor": "val/score", "save_top_k": -1, "save_on_train_epoch_end": True}
    trained(tmp_path / "b", [3.0, 2.0], **always, VAL_CHECK_INTERVAL=0.5)
    assert names(tmp_path / "b") == ["epoch=0-step=4.ckpt"]


def test_it_sees_what_the_module_does_at_the_same_point(tmp_path):
    """A value that the module logs at the end of an epoch decides about that epoch."""

    class Late(Scored):
        def on_train_epoch_end(self):
            self.log("late", float(self.current_epoch))

    checkpoint = trained(tmp_path, module=Late(), monitor="late", mode="max", MAX_EPOCHS=3)
    assert checkpoint.best_model_score == 2.0


def test_weights_only(tmp_path):
    """save_weights_only leaves out what only resuming needs."""
    trained(tmp_path, save_weights_only=True)
    checkpoint = read_checkpoint(tmp_path / "epoch=0-step=4.ckpt")
    assert "state_dict" in checkpoint
    assert "optimizer_states" not in checkpoint


class Stop(Callback):
    """Raises in the third step."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == 2:
            raise RuntimeError("stop here")


def test_save_on_exception(tmp_path):
    """save_on_exception saves the steps before the exception, which is what is raised; resuming goes on there."""
    with pytest.raises(RuntimeError, match="stop here"):
        trained(tmp_path, save_on_exception=True, callbacks=[Stop()])
    assert names(tmp_path) == ["epoch=0-step=2.ckpt"]
    seen = []
    module = Scored()
    module.on_train_batch_start = lambda batch, batch_idx: seen.append(batch_idx)
    trained(tmp_path / "more", module=module, ckpt_path=tmp_path / "epoch=0-step=2.ckpt")
    assert seen == [2, 3]


def test_exception_is_not_hidden(tmp_path):
    """Where saving fails too, a warning says so and the first exception is raised."""
    (tmp_path / "file").write_text("")
    with (
        pytest.warns(UserWarning, match="no checkpoint on the exception"),
        pytest.raises(RuntimeError, match="stop here"),
    ):
        trained(tmp_path / "file", save_on_exception=True, callbacks=[Stop()])


def test_default_folder(tmp_path):
    """Without dirpath checkpoints lie below the logger's folder, and best and last are found by name."""
    trainer = quiet_trainer(default_root_dir=tmp_path, logger=True, enable_checkpointing=True)
    trainer.fit(Scored(), loader())
    assert trainer.checkpoint_callback.dirpath == os.path.join(trainer.log_dir, "checkpoints")
    assert trainer.checkpoint_callback.best_model_path.endswith("version_0/checkpoints/epoch=0-step=4.ckpt")
    assert len(trainer.validate(Scored([1.0]), loader(), ckpt_path="best", verbose=False)) == 1


def test_last_is_found_by_a_program_that_comes_later(tmp_path):
    """ckpt_path="last" begins anew the first time and says so, then goes on from the newest last file of its folder."""
    with pytest.warns(UserWarning, match="ckpt_path='last': .* saved none yet, so this run begins anew"):
        trained(tmp_path, save_last=True, ckpt_path="last")
    shutil.copy(tmp_path / "last.ckpt", tmp_path / "last-v1.ckpt")
    os.utime(tmp_path / "last-v1.ckpt", (1, 1))
    module = Scored()
    trained(tmp_path, module=module, save_last=True, ckpt_path="last", MAX_EPOCHS=2)
    assert module.trainer.global_step == 8
    with pytest.raises(InterlockError, match="ckpt_path='best' asks for a checkpoint, but the ModelCheckpoint has"):
        trained(tmp_path, ckpt_path="best")
    with pytest.raises(InterlockError, match="ckpt_path='last' asks for a checkpoint, but there is no ModelCheckpoint"):
        quiet_trainer().fit(Scored(), loader(), ckpt_path="last")


def test_async_checkpointing_keeps_order(tmp_path):
    """Written beside the training, files replace each other in order and the link never points to nothing."""
    checkpoint = trained(tmp_path, save_last="link", MAX_EPOCHS=4, ASYNC_CHECKPOINTING=True)
    assert names(tmp_path) == ["epoch=3-step=16.ckpt", "last.ckpt"]
    assert read_checkpoint(checkpoint.last_model_path)["epoch"] == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"every_n_epochs": 1, "every_n_train_steps": 5},
        {"train_time_interval": timedelta(seconds=1), "every_n_train_steps": 5},
        {"mode": "least"},
        {"save_top_k": -2},
        {"save_last": "copy"},
        {"every_n_epochs": -1},
    ],
    ids=str,
)
def test_refused_arguments(settings):
    """A value outside its range, or two moments to save at, are refused at once."""
    with pytest.raises(InvalidArgument):
        ModelCheckpoint(**settings)


def test_two_with_one_key():
    """Two that would share their state in a checkpoint are refused by the Trainer."""
    with pytest.raises(InvalidArgument, match="share the state_key"):
        quiet_trainer(callbacks=[ModelCheckpoint("a"), ModelCheckpoint("b")], enable_checkpointing=True)


def test_weights_are_those_of_the_step(tmp_path):
    """A file holds the weights as they were at its step."""
    seen = {}

    class Note(Callback):
        def on_train_epoch_end(self, trainer, module):
            seen[trainer.current_epoch] = module.layer.weight.detach().clone()

    trained(tmp_path, save_top_k=-1, MAX_EPOCHS=2, callbacks=[Note()])
    for epoch, weight in seen.items():
        state = read_checkpoint(tmp_path / f"epoch={epoch}-step={4 * (epoch + 1)}.ckpt")["state_dict"]
        assert torch.equal(state["layer.weight"], weight)

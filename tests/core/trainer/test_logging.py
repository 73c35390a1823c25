"""What is logged in a hook reaches callbacks and loggers, wherever the hook is."""

import csv

import pytest
from support.nets import Net, loader, quiet_trainer

from core import Callback, ModelCheckpoint
from core.errors import InvalidArgument
from core.loggers import CSVLogger

OF_THE_EPOCH = ("on_train_start", "on_train_epoch_start", "on_train_epoch_end")
OF_A_BATCH = ("on_train_batch_start", "on_before_backward", "on_after_backward", "on_train_batch_end")


class Everywhere(Net):
    """Logs in each hook the number of the call, under the hook's name."""

    calls_so_far = 0


def _logging(hook):
    def log(self, *arguments):
        self.calls_so_far += 1
        self.log(hook, float(self.calls_so_far))

    return log


for each in (*OF_THE_EPOCH, *OF_A_BATCH):
    setattr(Everywhere, each, _logging(each))


def fit(folder, module, **settings):
    """Train, and return the trainer and the rows of the CSV file without empty cells."""
    trainer = quiet_trainer(logger=CSVLogger(folder), log_every_n_steps=2, **settings)
    trainer.fit(module, loader(2))
    with open(f"{trainer.log_dir}/metrics.csv") as file:
        return trainer, [{name: float(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def test_every_hook_can_log(tmp_path):
    """A value of a hook outside batches is the epoch's, written once; one of a hook in a batch is its step's."""
    trainer, rows = fit(tmp_path, Everywhere())
    where = {name: [number for number, row in enumerate(rows) if name in row] for name in (*OF_THE_EPOCH, *OF_A_BATCH)}
    assert [where[name] for name in OF_A_BATCH] == [[0]] * 4
    assert [where[name] for name in OF_THE_EPOCH] == [[1], [1], [2]]
    values = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert (values["on_train_start"], values["on_train_epoch_start"], values["on_train_epoch_end"]) == (1.0, 2.0, 11.0)
    assert rows[2]["on_train_epoch_end"] == 11.0


def test_an_epochs_value_may_have_the_name_of_a_steps(tmp_path):
    """A name that is logged in the step and again when the epoch ends has the step's values first, then the epoch's."""

    class Twice(Net):
        def training_step(self, batch, batch_idx):
            self.log("both", 1.0)
            self.log("mean", float(batch_idx), on_step=False, on_epoch=True)
            return super().training_step(batch, batch_idx)

        def on_train_epoch_end(self):
            self.log("both", 7.0)
            self.log("mean", 9.0)

    trainer, rows = fit(tmp_path, Twice())
    assert [row["both"] for row in rows if "both" in row] == [1.0, 7.0]
    assert [row["mean"] for row in rows if "mean" in row] == [0.5, 9.0]
    assert (trainer.callback_metrics["both"], trainer.callback_metrics["mean"]) == (7.0, 9.0)


def test_what_the_module_logs_at_the_end_of_an_epoch_can_be_monitored(tmp_path):
    """ModelCheckpoint ranks by a value of the module's on_train_epoch_end; others see the epoch's mean there."""

    class Scores(Net):
        def training_step(self, batch, batch_idx):
            self.log("mean", float(batch_idx), on_step=True, on_epoch=True)
            return super().training_step(batch, batch_idx)

        def on_train_epoch_end(self):
            self.log("score", float(-self.current_epoch))

    class Looks(Callback):
        def on_train_epoch_end(self, trainer, module):
            self.seen = float(trainer.callback_metrics["mean"])

    saving, looks = ModelCheckpoint(tmp_path, monitor="score", mode="min"), Looks()
    fit(tmp_path, Scores(), callbacks=[looks, saving], enable_checkpointing=True, max_epochs=2)
    assert saving.best_model_score == -1.0
    assert looks.seen == 0.5


def test_a_step_value_where_there_is_no_step_is_refused():
    """on_step=True in a hook outside batches would never be written, so it is refused with what to leave out."""

    class Wrong(Net):
        def on_train_epoch_end(self):
            self.log("score", 1.0, on_step=True)

    with pytest.raises(InvalidArgument, match=r"log\('score', on_step=True, .* where there is no step\n.* leave out"):
        quiet_trainer().fit(Wrong(), loader(1))

"""Metrics in a CSV file."""

import csv

import pytest
import torch
from torch.utils.data import DataLoader

from core import CSVLogger, Module, Trainer


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_each_call_is_a_row(tmp_path):
    """A call is a row, epoch and step are the first columns, and a metric that a row lacks is an empty cell."""
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 0.5, "epoch": 0}, step=1)
    logger.log_metrics({"acc": 1.0, "epoch": 0}, step=2)
    logger.save()
    assert logger.path.read_text().splitlines() == ["epoch,step,acc,loss", "0,1,,0.5", "0,2,1.0,"]


def test_new_metrics_widen_the_file(tmp_path):
    """A metric that comes up later gets a column, and the rows before it stay as they were."""
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 0.5}, step=1)
    logger.save()
    logger.log_metrics({"größe": 3.0}, step=2)
    logger.save()
    assert rows_of(logger.path) == [
        {"step": "1", "loss": "0.5", "größe": ""},
        {"step": "2", "loss": "", "größe": "3.0"},
    ]
    assert [path.name for path in logger.path.parent.iterdir()] == ["metrics.csv"]


def test_a_file_that_is_there_is_continued(tmp_path):
    """A logger for a folder with a file adds its rows under that file's columns, whatever order its own would have."""
    first = CSVLogger(tmp_path, version="same")
    first.log_metrics({"b": 1.0}, step=1)
    first.save()
    second = CSVLogger(tmp_path, version="same")
    second.log_metrics({"a": 2.0, "b": 3.0}, step=2)
    second.finalize("success")
    assert rows_of(second.path) == [{"step": "1", "b": "1.0", "a": ""}, {"step": "2", "b": "3.0", "a": "2.0"}]


def test_a_file_that_was_removed_gets_its_header_again(tmp_path):
    """Removing the file in the middle of a run loses its rows and nothing else."""
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 0.5}, step=1)
    logger.save()
    logger.path.unlink()
    logger.log_metrics({"loss": 0.4}, step=2)
    logger.save()
    assert logger.path.read_text().splitlines() == ["step,loss", "2,0.4"]


def test_rows_are_held_back_up_to_a_number(tmp_path):
    """Rows reach the file when as many as were asked for are held back, and the rest at the end of the run."""
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=2)
    logger.log_metrics({"loss": 3.0}, step=1)
    assert not logger.path.exists()
    logger.log_metrics({"loss": 2.0}, step=2)
    assert len(rows_of(logger.path)) == 2
    logger.log_metrics({"loss": 1.0}, step=3)
    logger.finalize("failed")
    assert [row["loss"] for row in rows_of(logger.path)] == ["3.0", "2.0", "1.0"]


def test_nothing_logged_leaves_nothing_behind(tmp_path):
    """Without metrics there is no file and no folder."""
    CSVLogger(tmp_path / "logs").finalize("success")
    assert list(tmp_path.iterdir()) == []


def test_version_is_the_first_free_number(tmp_path):
    """Without a version a run takes the number after the highest; other names in the folder do not count."""
    for name in ("version_0", "version_9", "version_10", "version_x", "best"):
        (tmp_path / "interlock_logs" / name).mkdir(parents=True)
    logger = CSVLogger(tmp_path)
    assert logger.version == 11
    assert logger.log_dir == str(tmp_path / "interlock_logs" / "version_11")


@pytest.mark.parametrize(
    ("name", "version", "folder"),
    [("exp", 3, "exp/version_3"), ("exp", "tuned", "exp/tuned"), ("", "", "."), ("", 0, "version_0")],
)
def test_folder_follows_name_and_version(tmp_path, name, version, folder):
    """The folder is name/version_<number> or name/version, and empty parts are left out."""
    assert CSVLogger(tmp_path, name, version).log_dir == str(tmp_path / folder)


class Net(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).mean()
        self.log("loss", loss)
        self.log("shown", 1.0, logger=False)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_trainer_writes_every_nth_step_and_each_validation(tmp_path):
    """A fit leaves a row for each n-th optimizer step and one for each validation, with the epoch counted from 0."""
    data = DataLoader(torch.ones(6, 1), batch_size=1)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        log_every_n_steps=4,
        default_root_dir=tmp_path,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Net(), data, data)
    rows = rows_of(trainer.loggers[0].path)
    assert [(row["epoch"], row["step"], bool(row["loss"]), bool(row["val_loss"])) for row in rows] == [
        ("0", "4", True, False),
        ("0", "6", False, True),
        ("1", "8", True, False),
        ("1", "12", True, False),
        ("1", "12", False, True),
    ]
    assert "shown" not in rows[0]


def test_prefix_goes_before_each_metric(tmp_path):
    """With a prefix metrics are named by it; epoch and step stay what they are."""
    logger = CSVLogger(tmp_path, prefix="mine")
    logger.log_metrics({"loss": 0.5, "epoch": 0}, 1)
    logger.save()
    assert logger.path.read_text().split() == ["epoch,step,mine-loss", "0,1,0.5"]

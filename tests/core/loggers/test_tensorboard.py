"""TensorBoardLogger, read back with TensorBoard's own reader."""

import pickle

import pytest
import torch
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core import availability
from core.errors import PluginUnavailable
from core.loggers import TensorBoardLogger

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def events(folder):
    """Return TensorBoard's own view of a folder."""
    accumulator = event_accumulator.EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


def scalars(folder, name):
    return [(event.step, pytest.approx(event.value)) for event in events(folder).Scalars(name)]


class Net(Scored):
    """Draws a histogram of its own, and keeps hyperparameters."""

    def __init__(self, lr=0.1, kind="small"):
        super().__init__()
        self.save_hyperparameters()
        self.example_input_array = torch.ones(1, 4)

    def forward(self, batch):
        return self.layer(batch)

    def on_train_epoch_end(self):
        self.logger.experiment.add_histogram("weight", self.layer.weight, self.current_epoch)


def fit(logger, module=None):
    trainer = quiet_trainer(logger=logger, log_every_n_steps=2, max_epochs=2)
    trainer.fit(module or Net(), loader(4), loader(1))
    return trainer


def test_metrics_and_hyperparameters(tmp_path):
    """A fit leaves its metrics by step, its hyperparameters with hp_metric, and what the module itself drew."""
    logger = TensorBoardLogger(tmp_path)
    trainer = fit(logger)
    assert trainer.log_dir == logger.log_dir == str(tmp_path / "interlock_logs" / "version_0")
    found = events(logger.log_dir)
    assert [event.step for event in found.Scalars("loss")] == [2, 4, 6, 8]
    assert [(event.step, event.value) for event in found.Scalars("hp_metric")] == [(0, -1.0)]
    assert found.Tags()["histograms"] == ["weight"]
    assert "_hparams_/session_start_info" in found.PluginTagToContent("hparams")


def test_versions_and_names(tmp_path):
    """Each run takes the next version; a name, a version and a folder below it can be given."""
    fit(TensorBoardLogger(tmp_path))
    assert TensorBoardLogger(tmp_path).version == 1
    logger = TensorBoardLogger(tmp_path, name=None, version="mine", sub_dir="part")
    assert logger.log_dir == str(tmp_path / "mine" / "part")
    assert (logger.name, logger.save_dir, logger.root_dir) == ("", str(tmp_path), f"{tmp_path}/")


def test_log_metrics(tmp_path):
    """Numbers go by step under their prefixed name; a dictionary of numbers becomes curves in one picture."""
    logger = TensorBoardLogger(tmp_path, prefix="p")
    logger.log_metrics({"x": 1.5}, 3)
    logger.log_metrics({"x": torch.tensor(2.5), "both": {"a": 1.0, "b": 2.0}}, 4)
    logger.finalize("success")
    assert scalars(logger.log_dir, "p-x") == [(3, 1.5), (4, 2.5)]
    assert scalars(f"{logger.log_dir}/p-both_a", "p-both") == [(4, 1.0)]


def test_hyperparameters_with_metrics(tmp_path):
    """Metrics to compare runs by can be given; default_hp_metric=False begins none."""
    logger = TensorBoardLogger(tmp_path, default_hp_metric=False)
    logger.log_hyperparams({"lr": 0.1, "net": {"depth": 2}}, {"score": 3.0})
    logger.save()
    assert scalars(logger.log_dir, "score") == [(0, 3.0)]
    assert "hp_metric" not in events(logger.log_dir).Tags()["scalars"]


def test_graph(tmp_path):
    """With log_graph the module is drawn from its example."""
    plain, drawn = Net(), Net()
    drawn.load_state_dict(plain.state_dict())
    logger = TensorBoardLogger(tmp_path, log_graph=True)
    fit(logger, drawn)
    assert events(logger.log_dir).Tags()["graph"]
    fit(TensorBoardLogger(tmp_path), plain)
    assert torch.equal(plain.layer.weight, drawn.layer.weight)


def test_graph_that_cannot_be_drawn(tmp_path):
    """A forward that cannot be drawn costs the picture and nothing else."""
    module = Net()
    module.example_input_array = torch.ones(1, 9)
    with pytest.warns(UserWarning, match="no graph: RuntimeError"):
        fit(TensorBoardLogger(tmp_path, log_graph=True), module)


def test_travels_to_other_processes(tmp_path):
    """It can be pickled after it has written, and writes to the same folder again."""
    logger = TensorBoardLogger(tmp_path)
    logger.log_metrics({"x": 1.0}, 1)
    twin = pickle.loads(pickle.dumps(logger))
    assert twin.log_dir == logger.log_dir
    twin.log_metrics({"x": 2.0}, 2)
    twin.finalize("success")


def test_only_rank_zero_writes(tmp_path, monkeypatch):
    """On another rank the experiment takes everything, nothing is written, and the version is that of rank 0."""
    monkeypatch.setattr("core.loggers.tensorboard.is_writing_rank", lambda: False)
    logger = TensorBoardLogger(tmp_path)
    logger.adopt_version(7)
    logger.experiment.add_image("x", None)
    logger.log_metrics({"x": 1.0}, 1)
    logger.log_hyperparams({"lr": 1})
    logger.finalize("success")
    assert logger.log_dir.endswith("version_7")
    assert list(tmp_path.iterdir()) == []


def test_missing_package(monkeypatch):
    """Without the package it cannot be made, and the error says what to install."""
    availability.package_problem.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(availability, "installed_version", lambda name: None)
        with pytest.raises(PluginUnavailable) as error:
            TensorBoardLogger()
    lines = str(error.value).splitlines()
    assert lines[0] == "logger TensorBoardLogger cannot run here"
    assert lines[1].endswith('is not installed; pip install "interlock[tensorboard]"')

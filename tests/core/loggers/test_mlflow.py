"""MLFlowLogger with a store of plain files, read back with MLflow's own client."""

import os
import pickle
import time
from types import SimpleNamespace

import pytest
from support.nets import loader, quiet_trainer
from support.scored import Scored

from core import ModelCheckpoint, availability
from core.errors import InvalidArgument, PluginUnavailable
from core.loggers import MLFlowLogger

pytest.importorskip("mlflow")


class Net(Scored):
    def __init__(self, lr=0.1, text="x" * 900):
        super().__init__([0.5, 0.25])
        self.save_hyperparameters()


def client(logger):
    """Return a client of the same store that this program did not open."""
    from mlflow.tracking import MlflowClient

    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    try:
        return MlflowClient(logger._uri)
    finally:
        del os.environ["MLFLOW_ALLOW_FILE_STORE"]


@pytest.fixture(autouse=True)
def no_server(monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.delenv(name, raising=False)


def fit(logger, folder, **settings):
    saving = ModelCheckpoint(monitor="val/score", save_top_k=2)
    trainer = quiet_trainer(
        logger=logger, log_every_n_steps=2, max_epochs=2, callbacks=[saving], enable_checkpointing=True, **settings
    )
    data = loader(4)
    trainer.fit(Net(), data, data)
    return saving


def test_run_in_files(tmp_path):
    """A fit leaves a finished run with metrics by step, hyperparameters and tags in plain files below save_dir."""
    logger = MLFlowLogger("mine", run_name="first", tags={"team": "a"}, save_dir=tmp_path / "runs", prefix="p")
    saving = fit(logger, tmp_path)
    found = client(logger).get_run(logger.version)
    assert (found.info.status, found.info.run_name, found.data.tags["team"]) == ("FINISHED", "first", "a")
    assert found.data.params["lr"] == "0.1"
    assert found.data.params["text"] == "x" * 500
    history = client(logger).get_metric_history(logger.version, "p-loss")
    assert [metric.step for metric in history] == [2, 4, 6, 8]
    assert found.data.metrics["p-val/score"] == 0.25
    assert logger.name == "mine"
    assert saving.dirpath == str(tmp_path / "runs" / found.info.experiment_id / logger.version / "checkpoints")
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ


def test_second_run_of_an_experiment_and_going_on(tmp_path):
    """A second logger makes a run of the same experiment; with run_id it goes on with one."""
    first, second = (MLFlowLogger("mine", save_dir=tmp_path) for _ in range(2))
    first.log_metrics({"x": 1.0}, 1)
    second.log_metrics({"x": 2.0}, 1)
    assert first.experiment_id == second.experiment_id
    assert first.run_id != second.run_id
    again = MLFlowLogger(save_dir=tmp_path, run_id=first.run_id)
    again.log_metrics({"x": 3.0}, 2)
    assert again.experiment_id == first.experiment_id
    assert [m.value for m in client(again).get_metric_history(first.run_id, "x")] == [1.0, 3.0]


@pytest.mark.parametrize(("log_model", "files"), [(False, 0), (True, 1), ("all", 2)])
def test_checkpoints_as_artifacts(tmp_path, log_model, files):
    """Checkpoints are handed over as artifacts: none, the best at the end, or all that are kept."""
    logger = MLFlowLogger(save_dir=tmp_path / "runs", log_model=log_model)
    saving = fit(logger, tmp_path)
    names = [item.path for item in client(logger).list_artifacts(logger.version, "checkpoints")]
    assert len(names) == files
    if log_model is True:
        assert os.path.basename(names[0]) == os.path.basename(saving.best_model_path)


def test_failed_run(tmp_path):
    """A run that fails is marked as failed."""
    logger = MLFlowLogger(save_dir=tmp_path)
    logger.log_metrics({"x": 1.0}, 1)
    logger.finalize("failed")
    assert client(logger).get_run(logger.version).info.status == "FAILED"


def test_names_that_mlflow_does_not_take(tmp_path):
    """Letters that MLflow refuses in names are replaced."""
    logger = MLFlowLogger(save_dir=tmp_path)
    logger.log_metrics({"loss@5:a": 1.0}, 1)
    assert client(logger).get_run(logger.run_id).data.metrics == {"loss_5_a": 1.0}


def test_uri_goes_before_files(tmp_path, monkeypatch):
    """A tracking URI, given or in MLflow's own variable, goes before files, and then there is no folder."""
    assert MLFlowLogger(tracking_uri="http://localhost:1").save_dir is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:2")
    assert MLFlowLogger()._uri == "http://localhost:2"
    assert MLFlowLogger().log_dir is None


def test_only_rank_zero_writes(tmp_path, monkeypatch):
    """On another rank nothing is written, and the run is that of rank 0."""
    monkeypatch.setattr("core.loggers.mlflow.is_writing_rank", lambda: False)
    logger = MLFlowLogger(save_dir=tmp_path)
    logger.adopt_version("abc")
    logger.log_metrics({"x": 1.0}, 1)
    logger.log_hyperparams({"lr": 1})
    logger.experiment.log_text("a", "b", "c")
    logger.finalize("success")
    assert (logger.version, logger.log_dir) == ("abc", None)
    assert list(tmp_path.iterdir()) == []


def test_travels_to_other_processes(tmp_path):
    """It can be pickled, and goes on with the same run."""
    logger = MLFlowLogger(save_dir=tmp_path)
    logger.log_metrics({"x": 1.0}, 1)
    twin = pickle.loads(pickle.dumps(logger))
    twin.log_metrics({"x": 2.0}, 2)
    assert twin.run_id == logger.run_id


def test_time_is_that_of_the_call(tmp_path, monkeypatch):
    """Metrics carry the time at which they were logged."""
    monkeypatch.setattr("core.loggers.mlflow.time", SimpleNamespace(time=lambda: 12.0))
    logger = MLFlowLogger(save_dir=tmp_path)
    logger.log_metrics({"x": 1.0}, 1)
    monkeypatch.setattr("core.loggers.mlflow.time", time)
    assert client(logger).get_metric_history(logger.run_id, "x")[0].timestamp == 12_000


def test_refused(monkeypatch):
    """An unknown log_model is refused; without the package it cannot be made, and the error says what to install."""
    with pytest.raises(InvalidArgument, match="log_model='best'"):
        MLFlowLogger(log_model="best")
    availability.package_problem.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(availability, "installed_version", lambda name: None)
        with pytest.raises(PluginUnavailable, match=r'pip install "interlock\[mlflow\]"'):
            MLFlowLogger()

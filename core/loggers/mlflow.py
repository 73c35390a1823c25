"""Metrics for MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlparse

from core.errors import InvalidArgument
from core.loggers.base import Logger, Nothing, flattened, is_writing_rank, prefixed
from core.loggers.needed import need_package

if TYPE_CHECKING:
    from core.callbacks import ModelCheckpoint

ALLOW_FILES = "MLFLOW_ALLOW_FILE_STORE"
"""MLflow from 3.7 on wants to be told that a store of plain files is meant."""
LONGEST_VALUE = 500
"""Characters of a hyperparameter that every MLflow takes."""


class MLFlowLogger(Logger):
    """Writes to an MLflow store: plain files in ``save_dir``, unless a tracking server or a database is named.

    Needs the extra ``mlflow``. Look at the files with ``MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri
    <save_dir>``.

    Args:
        experiment_name: the experiment; made where there is none.
        run_name: the run's name.
        tracking_uri: a server or a database; by default the environment variable MLFLOW_TRACKING_URI, else files.
        tags: tags of the run.
        save_dir: the folder of the files, where nothing else is named.
        log_model: hand checkpoints over as artifacts: True the best, when training is over; ``"all"`` all kept ones.
        prefix: before the name of each metric.
        artifact_location: where a new experiment keeps its artifacts.
        run_id: go on with this run.

    Raises:
        PluginUnavailable: without the package ``mlflow``.
    """

    def __init__(
        self,
        experiment_name: str = "interlock_logs",
        run_name: str | None = None,
        tracking_uri: str | None = None,
        tags: Mapping[str, Any] | None = None,
        save_dir: str | os.PathLike[str] | None = "./mlruns",
        log_model: bool | Literal["all"] = False,
        prefix: str = "",
        artifact_location: str | None = None,
        run_id: str | None = None,
    ) -> None:
        need_package("MLFlowLogger", ["mlflow", "mlflow-skinny"], "mlflow.tracking")
        if log_model not in (True, False, "all"):
            raise InvalidArgument(f"log_model={log_model!r} must be True, False or 'all'")
        folder = os.path.abspath(os.fspath(save_dir or "./mlruns"))
        self._uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or Path(folder).as_uri()
        self._experiment_name, self._run_name, self._tags = experiment_name, run_name, dict(tags or {})
        self._log_model, self._prefix, self._artifact_location = log_model, prefix, artifact_location
        self._run_id, self._experiment_id = run_id, ""
        self._client: Any = None
        self._handed_over: set[str] = set()
        self._checkpoints: ModelCheckpoint | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_checkpoints": None}

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self._experiment_name

    @property
    def version(self) -> str | None:
        """The run's id, once it has begun."""
        return self._run_id

    def adopt_version(self, version: int | str | None) -> None:
        self._run_id = None if version is None else str(version)

    @property
    def run_id(self) -> str | None:
        """The run's id; it begins now if it has not."""
        self.experiment  # noqa: B018 - looking at it begins the run
        return self._run_id

    @property
    def experiment_id(self) -> str:
        """The experiment's id; it is made now where there is none."""
        self.experiment  # noqa: B018
        return self._experiment_id

    @property
    def save_dir(self) -> str | None:
        """The folder of the files; None where something else is named."""
        parts = urlparse(self._uri)
        return unquote(parts.path) if parts.scheme == "file" else None

    @property
    def log_dir(self) -> str | None:
        if self.save_dir is None or not is_writing_rank():
            return None
        return os.path.join(self.save_dir, self.experiment_id, self.run_id or "")

    @property
    def experiment(self) -> Any:
        """The :class:`mlflow.tracking.MlflowClient`; :attr:`run_id` says which run it is to write to."""
        if not is_writing_rank():
            return Nothing()
        if self._client is None:
            with _files_allowed(self._uri):
                self._begin()
        return self._client

    def _begin(self) -> None:
        from mlflow.tracking import MlflowClient

        client = MlflowClient(self._uri)
        if self._run_id is not None:
            run = client.get_run(self._run_id)
            client.update_run(self._run_id, status="RUNNING")
            self._experiment_id = run.info.experiment_id
        else:
            found = client.get_experiment_by_name(self._experiment_name)
            self._experiment_id = (
                found.experiment_id
                if found is not None
                else client.create_experiment(self._experiment_name, artifact_location=self._artifact_location)
            )
            run = client.create_run(self._experiment_id, tags=self._tags, run_name=self._run_name)
            self._run_id = run.info.run_id
        self._client = client

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        client = self.experiment
        if isinstance(client, Nothing):
            return
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        values = prefixed(self._prefix, metrics).items()
        client.log_batch(self._run_id, metrics=[Metric(_name(name), float(v), now, step) for name, v in values])

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        client = self.experiment
        if isinstance(client, Nothing):
            return
        from mlflow.entities import Param

        flat = {name: str(value)[:LONGEST_VALUE] for name, value in flattened(params).items()}
        items = [Param(_name(name), value) for name, value in flat.items()]
        for start in range(0, len(items), 100):  # as many as MLflow takes at once
            client.log_batch(self._run_id, params=items[start : start + 100])

    def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:
        if self._log_model == "all":
            self._hand_over(checkpoint_callback.best_k_models)
        elif self._log_model:
            self._checkpoints = checkpoint_callback

    def _hand_over(self, paths: Mapping[str, Any]) -> None:
        for path in paths:
            if path not in self._handed_over and os.path.exists(path):
                self._handed_over.add(path)
                self.experiment.log_artifact(self._run_id, path, "checkpoints")

    def finalize(self, status: str) -> None:
        if self._client is None:
            return
        if self._checkpoints is not None:
            self._hand_over({self._checkpoints.best_model_path: None})
        self._client.set_terminated(self._run_id, "FINISHED" if status == "success" else "FAILED")
        self._client, self._checkpoints = None, None  # a later fit goes on with the same run


def _name(name: str) -> str:
    """Return ``name`` with what MLflow does not take in names replaced."""
    return "".join(letter if letter.isalnum() or letter in "_-. /" else "_" for letter in name)


@contextmanager
def _files_allowed(uri: str) -> Iterator[None]:
    """Tell MLflow inside that plain files are meant, where they are."""
    if urlparse(uri).scheme not in ("", "file") or ALLOW_FILES in os.environ:
        yield
        return
    os.environ[ALLOW_FILES] = "true"
    try:
        yield
    finally:
        del os.environ[ALLOW_FILES]

"""Metrics for TensorBoard."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.arguments import flag
from core.loggers.base import Logger, Nothing, flattened, is_writing_rank, prefixed
from core.loggers.needed import need_package

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardLogger(Logger):
    """Writes event files to ``<save_dir>/<name>/version_<n>``, for ``tensorboard --logdir <save_dir>``.

    Needs the extra ``tensorboard``.

    Args:
        save_dir: the folder for all runs.
        name: the folder for runs of this name; "" or None for none.
        version: a number or a folder's name; None takes the first number that is free.
        log_graph: draw the module, which needs its ``example_input_array``.
        default_hp_metric: with hyperparameters, begin the metric ``hp_metric`` at -1, so that runs can be compared.
        prefix: before the name of each metric.
        sub_dir: a folder below the version's.
        kwargs: for :class:`torch.utils.tensorboard.SummaryWriter`.

    Raises:
        PluginUnavailable: without the package ``tensorboard``.
    """

    def __init__(
        self,
        save_dir: str | os.PathLike[str] = ".",
        name: str | None = "interlock_logs",
        version: int | str | None = None,
        log_graph: bool = False,
        default_hp_metric: bool = True,
        prefix: str = "",
        sub_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> None:
        need_package("TensorBoardLogger", ["tensorboard"], "tensorboard.summary")
        self._save_dir, self._name, self._version = os.fspath(save_dir), name or "", version
        self._log_graph = flag("log_graph", log_graph)
        self._default_hp_metric = flag("default_hp_metric", default_hp_metric)
        self._prefix, self._sub_dir, self._arguments = prefix, sub_dir, kwargs
        self._writer: SummaryWriter | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None}

    @property
    def name(self) -> str:
        return self._name

    @property
    def save_dir(self) -> str:
        return self._save_dir

    @property
    def root_dir(self) -> str:
        """The folder for runs of this name."""
        return os.path.join(self._save_dir, self._name)

    @property
    def version(self) -> int | str:
        """The version of this run, chosen when it is first asked for."""
        if self._version is None:
            found = [re.fullmatch(r"version_(\d+)", path.name) for path in Path(self.root_dir).glob("version_*")]
            self._version = 1 + max((int(match[1]) for match in found if match), default=-1)
        return self._version

    @property
    def log_dir(self) -> str:
        """The folder of this run."""
        version = self.version if isinstance(self.version, str) else f"version_{self.version}"
        return os.path.join(self.root_dir, version, *([self._sub_dir] if self._sub_dir else []))

    @property
    def experiment(self) -> Any:
        """torch's SummaryWriter, for images, histograms and the rest."""
        if not is_writing_rank():
            return Nothing()
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self.log_dir, **self._arguments)
        return self._writer

    def log_metrics(self, metrics: Mapping[str, Any], step: int) -> None:
        for name, value in prefixed(self._prefix, metrics).items():
            if isinstance(value, Mapping):
                self.experiment.add_scalars(name, dict(value), step)
            else:
                self.experiment.add_scalar(name, float(value), step)

    def log_hyperparams(self, params: Mapping[str, Any], metrics: Mapping[str, float] | None = None) -> None:
        """Take hyperparameters, and the metrics that runs are to be compared by."""
        if metrics is None:
            metrics = {"hp_metric": -1.0} if self._default_hp_metric else {}
        if not is_writing_rank():
            return
        from torch.utils.tensorboard.summary import hparams

        # SummaryWriter.add_hparams would begin another run, in a folder of its own
        writer = self.experiment._get_file_writer()
        for summary in hparams(flattened(params), dict(metrics)):  # type: ignore[no-untyped-call]
            writer.add_summary(summary)
        for name, value in metrics.items():
            self.experiment.add_scalar(name, value, 0)

    def log_graph(self, model: nn.Module) -> None:
        example = getattr(model, "example_input_array", None)
        if not self._log_graph or example is None:
            return
        import torch

        from core.callbacks.summary import undisturbed
        from core.data.nested import map_tensors

        parameters = list(model.parameters())
        if any(hasattr(parameter, "full_tensor") for parameter in parameters):
            warnings.warn("no graph: its forward is an exchange between ranks, and one rank draws it", UserWarning)
            return
        device = next((parameter.device for parameter in parameters), None)
        try:
            with torch.no_grad(), undisturbed(model), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # torch's advice to TensorBoard's part of torch
                self.experiment.add_graph(model, map_tensors(example, lambda tensor: tensor.to(device)))
        except Exception as error:  # the forward is the user's code, and a picture must not end the run
            warnings.warn(f"no graph: {type(error).__name__}: {error}", UserWarning)

    def save(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def finalize(self, status: str) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

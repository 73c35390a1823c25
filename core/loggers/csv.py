"""Metrics in one CSV file, without any dependency."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from pathlib import Path

from core.loggers.base import Logger, prefixed


class CSVLogger(Logger):
    """Writes ``<save_dir>/<name>/version_<n>/metrics.csv``, a row for each call, a column for each metric.

    Args:
        save_dir: the folder for all runs.
        name: the folder for runs of this name; "" for none.
        version: a number or a folder's name; None takes the first number that is free. Rows are added to a file
            that is there already, as when a run is resumed.
        prefix: put before each metric's name, with a dash.
        flush_logs_every_n_steps: rows that are held back at most.
    """

    def __init__(
        self,
        save_dir: str | os.PathLike[str] = ".",
        name: str = "interlock_logs",
        version: int | str | None = None,
        prefix: str = "",
        flush_logs_every_n_steps: int = 100,
    ) -> None:
        self._root = Path(save_dir, name)
        self._version = version
        self._prefix = prefix
        self._flush_every = flush_logs_every_n_steps
        self._rows: list[dict[str, float]] = []

    @property
    def version(self) -> int | str:
        """The version of this run, chosen when it is first asked for."""
        if self._version is None:
            found = [re.fullmatch(r"version_(\d+)", path.name) for path in self._root.glob("version_*")]
            self._version = 1 + max((int(match[1]) for match in found if match), default=-1)
        return self._version

    @property
    def log_dir(self) -> str:
        """The folder of this run."""
        version = self.version
        return str(self._root / (version if isinstance(version, str) else f"version_{version}"))

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.log_dir, "metrics.csv")

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        self._rows.append({**self._named(metrics), "step": step})
        if len(self._rows) >= self._flush_every:
            self.save()

    def _named(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        if not self._prefix:
            return metrics
        named = prefixed(self._prefix, {name: value for name, value in metrics.items() if name != "epoch"})
        return named if "epoch" not in metrics else {**named, "epoch": metrics["epoch"]}

    def save(self) -> None:
        if not self._rows:
            return
        columns = self._header()
        fresh, names = not columns, sorted({name for row in self._rows for name in row})
        if fresh:
            first = [name for name in ("epoch", "step") if name in names]
            columns = first + [name for name in names if name not in first]
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif new := [name for name in names if name not in columns]:
            columns = self._widen([*columns, *new])
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            if fresh:
                writer.writeheader()
            writer.writerows(self._rows)
        self._rows.clear()

    def _header(self) -> list[str]:
        """Return the columns of the file as it is, also one that an earlier part of this run left."""
        try:
            with open(self.path, newline="", encoding="utf-8") as file:
                return next(csv.reader(file), [])
        except FileNotFoundError:
            return []

    def _widen(self, columns: list[str]) -> list[str]:
        """Write the file again with more columns: a metric came up that was not there before."""
        with open(self.path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        beside = self.path.with_name(f".{self.path.name}.partial")
        with open(beside, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        os.replace(beside, self.path)
        return columns

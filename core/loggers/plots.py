"""Draw a metrics file: one panel for each quantity, training and validation together, the best value marked.

    python -m core.loggers.plots metrics.csv curves.png

Columns that differ only in ``train_``, ``val_``, ``test_``, ``_step`` or ``_epoch`` are one quantity.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InterlockError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STAGES = {"train": "training", "val": "validation", "valid": "validation", "validation": "validation", "test": "test"}
_COLUMN = re.compile(rf"(?:({'|'.join(_STAGES)})[_/])?(.+?)(_step|_epoch)?\Z")
_COLOURS = {"training": "#4477aa", "validation": "#cc6633", "test": "#228833"}
_NAMES = {"acc": "accuracy", "lr": "learning rate"}
_LOW_IS_GOOD = ("loss", "error", "err", "mse", "rmse", "mae", "nll", "perplexity", "ppl", "wer", "cer")
_HIGH_IS_GOOD = ("acc", "accuracy", "f1", "auc", "auroc", "recall", "precision", "iou", "r2", "bleu", "dice")
_MOST_PANELS = 12

Row = Mapping[str, float]


@dataclass
class Series:
    """One curve: a column of the file, at the epochs that were done when it was written."""

    quantity: str
    stage: str
    each_step: bool
    epochs: list[float]
    values: list[float]
    place: str = "epoch"
    """What the numbers in ``epochs`` are: epochs that were done, or steps where the file has no epochs."""


def plot_metrics(
    metrics: str | os.PathLike[str],
    picture: str | os.PathLike[str],
    *,
    quantities: Sequence[str] = (),
    title: str = "",
) -> Path:
    """Draw the curves of a metrics file as CSVLogger writes it; return the path of the picture.

    Args:
        metrics: the file.
        picture: where to write; the ending chooses the format (png, svg, pdf).
        quantities: what to draw, such as ``["loss", "acc"]``; by default all.
        title: stands above the panels.

    Raises:
        InterlockError: when the file cannot be read or has nothing to draw, or matplotlib is not installed.
    """
    series = read_series(metrics)
    known = list(dict.fromkeys(one.quantity for one in series))
    unknown = [name for name in quantities if name not in known]
    if unknown or not known:
        has = ", ".join(known) or "no metrics"
        raise InterlockError(f"{os.fspath(metrics)} has {has}" + (f", but no {', '.join(unknown)}" if unknown else ""))
    wanted = list(quantities) or sorted(known, key=lambda name: not _is_good(name, _LOW_IS_GOOD))[:_MOST_PANELS]
    figure = make_figure([one for name in wanted for one in series if one.quantity == name], title)
    target = Path(picture)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(target)
    except ValueError as error:
        raise InterlockError(f"cannot write {target}: {error}") from error
    return target


def read_series(metrics: str | os.PathLike[str]) -> list[Series]:
    """Return the curves of a metrics file, in the order of its columns.

    Raises:
        InterlockError: when the file cannot be read.
    """
    try:
        with open(metrics, newline="", encoding="utf-8") as file:
            rows = [_numbers(row) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError) as error:
        raise InterlockError(f"cannot read {os.fspath(metrics)}: {error}") from error
    places = _epochs_done(rows)
    place = "epoch" if all("epoch" in row and "step" in row for row in rows) else "step"
    series = []
    for name in dict.fromkeys(name for row in rows for name in row if name not in ("epoch", "step")):
        having = [index for index, row in enumerate(rows) if name in row]
        match = _COLUMN.fullmatch(name)
        assert match is not None, "every name that is not empty matches"
        each_step = len(having) > len({rows[index].get("epoch") for index in having})
        stage = _STAGES[match[1] or "train"]
        values = [rows[index][name] for index in having]
        series.append(Series(match[2], stage, each_step, [places[index] for index in having], values, place))
    return series


def best_of(series: Sequence[Series]) -> tuple[Series, float, float] | None:
    """Return the best value of one quantity: its series, epoch and value.

    Validation counts, training where there is no validation. None where the name does not say which way is better.
    """
    low, high = (any(_is_good(one.quantity, words) for one in series) for words in (_LOW_IS_GOOD, _HIGH_IS_GOOD))
    if low == high:
        return None
    for stage in ("validation", "training"):
        points = [
            (one, epoch, value)
            for one in series
            if one.stage == stage and not one.each_step
            for epoch, value in zip(one.epochs, one.values, strict=True)
            if math.isfinite(value)
        ]
        if points:
            return (min if low else max)(points, key=lambda point: point[2])
    return None


def _is_good(quantity: str, words: Sequence[str]) -> bool:
    return any(part in words for part in re.split(r"[^a-z0-9]+", quantity.lower()))


def _numbers(row: Mapping[str | None, Any]) -> Row:
    """Return the cells of a row that are numbers."""
    numbers = {}
    for name, text in row.items():
        try:
            numbers[str(name)] = float(text)
        except (TypeError, ValueError):
            continue
    return numbers


def _epochs_done(rows: Sequence[Row]) -> list[float]:
    """Return how many epochs were done at each row, going by its step; without epochs, the steps themselves."""
    if not all("epoch" in row and "step" in row for row in rows):
        return [row.get("step", float(index)) for index, row in enumerate(rows)]
    ends: dict[float, float] = {}
    for row in rows:
        ends[row["epoch"]] = max(row["step"], ends.get(row["epoch"], 0.0))
    starts = {epoch: ends.get(epoch - 1, 0.0) for epoch in ends}
    longest = max((ends[epoch] - starts[epoch] for epoch in ends), default=1.0)  # the last may have been broken off
    return [row["epoch"] + (row["step"] - starts[row["epoch"]]) / max(longest, 1.0) for row in rows]


def make_figure(series: Sequence[Series], title: str = "") -> Figure:
    """Return a figure with one panel for each quantity among ``series``, in their order.

    Raises:
        InterlockError: when matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # not pyplot: no window, no state beyond this figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise InterlockError(f'drawing needs matplotlib ({error})\n  hint: pip install "interlock[plot]"') from error
    panels = {one.quantity: [other for other in series if other.quantity == one.quantity] for one in series}
    across = min(len(panels), 3)
    down = math.ceil(len(panels) / across)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(1.0 + 5.0 * across, 0.8 + 3.8 * down), dpi=130, layout=layout)
    if title:
        figure.suptitle(title, fontsize=13)
    for place, (quantity, curves) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(down, across, place)
        _draw_panel(axes, _NAMES.get(quantity, quantity), curves)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9, steps=[1, 2, 5, 10]))
    return figure


def _draw_panel(axes: Axes, name: str, series: Sequence[Series]) -> None:
    best = best_of(series)
    for one in sorted(series, key=lambda one: not one.each_step):  # the faint curves below the others
        width, alpha = (0.8, 0.35) if one.each_step else (2.0, 1.0)
        marker = "o" if len(one.values) == 1 else ""
        label = f"{one.stage}, single steps" if one.each_step else one.stage
        if best is not None and one is best[0]:
            label += f" (best {best[2]:.4g}, {one.place} {best[1]:g})"
        axes.plot(
            one.epochs,
            one.values,
            label=label,
            linewidth=width,
            alpha=alpha,
            marker=marker,
            color=_COLOURS[one.stage],
        )
    if best is not None:
        colour = _COLOURS[best[0].stage]
        axes.plot(best[1], best[2], "o", markersize=8, color=colour, markeredgecolor="white", zorder=5)
    axes.set_title(name[:1].upper() + name[1:], fontsize=11)
    axes.set_xlabel(series[0].place)
    axes.set_ylabel(name)
    if _is_good(series[0].quantity, _LOW_IS_GOOD):
        _use_log_scale(axes, series)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.get_lines()) > 1:
        axes.legend(frameon=False, fontsize=9)


def _use_log_scale(axes: Axes, series: Sequence[Series]) -> None:
    """Take a log scale where values fall by more than a factor of 20; all else would stick to the axis."""
    values = [value for one in series for value in one.values if math.isfinite(value)]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        axes.set_yscale("log")
        axes.set_ylabel(f"{axes.get_ylabel()} (log scale)")
        axes.yaxis.set_major_formatter("{x:g}")


def main(argv: Sequence[str] | None = None) -> int:
    """Draw what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(
        "python -m core.loggers.plots",
        description="Draw the curves of a metrics.csv.",
        epilog="example: python -m core.loggers.plots runs/digits/metrics.csv curves.png --only loss acc",
    )
    parser.add_argument("metrics", help="the file that CSVLogger wrote")
    parser.add_argument("picture", help="where to write; the ending chooses the format: png, svg, pdf")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="draw these quantities, such as loss acc")
    parser.add_argument("--title", default="", help="stands above the panels")
    args = parser.parse_args(argv)
    try:
        print(plot_metrics(args.metrics, args.picture, quantities=args.only, title=args.title))
    except InterlockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

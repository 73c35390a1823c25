"""Curves drawn from a metrics file."""

import subprocess
import sys

import pytest

from core.errors import InterlockError
from core.loggers.plots import best_of, main, make_figure, plot_metrics, read_series

METRICS = """\
epoch,step,acc,loss,train_loss,val_acc,val_loss
0,2,0.1,3.0,,,
0,4,0.2,2.0,,,
0,4,,,2.5,,
0,4,,,,0.5,1.2
1,6,0.3,1.0,,,
1,8,0.4,0.1,,,
1,8,,,0.8,,
1,8,,,,0.75,0.9
2,12,,,0.5,,
2,12,,,,0.70,nan
"""


@pytest.fixture
def metrics(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(METRICS)
    return path


def series_of(tmp_path, text):
    path = tmp_path / "some.csv"
    path.write_text(text)
    return read_series(path)


def test_columns_of_one_quantity_come_together(metrics):
    """Columns are read as quantity and stage, and as values of single steps where an epoch has several."""
    assert [(one.quantity, one.stage, one.each_step) for one in read_series(metrics)] == [
        ("acc", "training", True),
        ("loss", "training", True),
        ("loss", "training", False),
        ("acc", "validation", False),
        ("loss", "validation", False),
    ]


@pytest.mark.parametrize(
    ("column", "quantity", "stage"),
    [
        ("loss", "loss", "training"),
        ("train_loss_epoch", "loss", "training"),
        ("train/loss", "loss", "training"),
        ("val/f1", "f1", "validation"),
        ("valid_acc", "acc", "validation"),
        ("test_acc_step", "acc", "test"),
        ("value", "value", "training"),
        ("training_time", "training_time", "training"),
    ],
)
def test_names_of_columns(tmp_path, column, quantity, stage):
    """Prefixes and endings that people use are taken off a column's name, and nothing else is."""
    (one,) = series_of(tmp_path, f"epoch,step,{column}\n0,1,0.5\n")
    assert (one.quantity, one.stage) == (quantity, stage)


def test_values_stand_at_the_epochs_that_were_done(metrics):
    """A value at the end of the first epoch stands at 1, and one in the middle of it at a half."""
    steps, _, train, *_ = read_series(metrics)[0], None, read_series(metrics)[2]
    assert steps.epochs == [0.5, 1.0, 1.5, 2.0]
    assert train.epochs == [1.0, 2.0, 3.0]


def test_an_epoch_that_was_broken_off_is_not_stretched(tmp_path):
    """The last epoch's values stand where its steps were, even if it ended before its time."""
    (one,) = series_of(tmp_path, "epoch,step,loss\n0,10,1\n1,20,1\n2,25,1\n")
    assert one.epochs == [1.0, 2.0, 2.5]


def test_files_without_epochs_are_drawn_over_steps(tmp_path):
    """Where there is no epoch, a value stands at its step."""
    (one,) = series_of(tmp_path, "step,loss\n10,1\n20,1\n")
    assert one.epochs == [10, 20]
    (axes,) = make_figure([one]).axes
    assert axes.get_xlabel() == "step"


@pytest.mark.parametrize(
    ("header", "values", "best"),
    [
        ("val_loss", "3 1 2", (2.0, 1.0)),
        ("val_acc", "0.3 0.9 0.2", (2.0, 0.9)),
        ("val_top1_acc", "0.3 0.9 0.2", (2.0, 0.9)),
        ("train_loss", "3 2 1", (3.0, 1.0)),
        ("val_loss", "nan 2 inf", (2.0, 2.0)),
        ("val_loss", "nan nan nan", None),
        ("lr", "3 2 1", None),
        ("val_flavour", "3 2 1", None),
    ],
)
def test_best_value(tmp_path, header, values, best):
    """The best value is the lowest loss or the highest accuracy, and there is none for other names."""
    text = "\n".join(f"{epoch},{epoch + 1},{value}" for epoch, value in enumerate(values.split()))
    found = best_of(series_of(tmp_path, f"epoch,step,{header}\n{text}\n"))
    assert (found and found[1:]) == best


def test_validation_decides_what_is_best(metrics):
    """The best value is validation's even where training has better ones."""
    series, epoch, value = best_of([one for one in read_series(metrics) if one.quantity == "loss"])
    assert (series.stage, epoch, value) == ("validation", 2.0, 0.9)


def test_figure_names_what_it_shows(metrics):
    """Each panel has a title, named axes, a legend with the best value, and loss comes first, on a log scale."""
    figure = make_figure(sorted(read_series(metrics), key=lambda one: one.quantity == "acc"), title="A run")
    loss, accuracy = figure.axes
    assert figure.get_suptitle() == "A run"
    assert (loss.get_title(), loss.get_xlabel(), loss.get_ylabel()) == ("Loss", "epoch", "loss (log scale)")
    assert (accuracy.get_title(), accuracy.get_ylabel(), accuracy.get_yscale()) == ("Accuracy", "accuracy", "linear")
    assert [text.get_text() for text in loss.get_legend().get_texts()] == [
        "training, single steps",
        "training",
        "validation (best 0.9, epoch 2)",
    ]


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_picture_has_the_format_of_its_ending(metrics, tmp_path, ending, start):
    """The picture is written, its folder made, in the format that the ending names."""
    path = plot_metrics(metrics, tmp_path / "new" / f"curves.{ending}")
    assert path.read_bytes().startswith(start)


def test_command_line(metrics, tmp_path, capsys):
    """The command draws the quantities it was asked for, prints the picture's path and returns 0."""
    target = tmp_path / "c.png"
    assert main([str(metrics), str(target), "--only", "loss", "--title", "A run"]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert target.is_file()


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (None, [], ["cannot read", "No such file"]),
        ("", [], ["has no metrics"]),
        ("epoch,step\n0,1\n", [], ["has no metrics"]),
        ("epoch,step,loss\n0,1,2\n", ["--only", "acc"], ["has loss, but no acc"]),
    ],
)
def test_command_line_says_what_is_wrong(tmp_path, capsys, text, arguments, words):
    """A file that is missing, has no metrics or not the wanted ones is one line and exit code 1, and no picture."""
    path, target = tmp_path / "m.csv", tmp_path / "c.png"
    if text is not None:
        path.write_text(text)
    assert main([str(path), str(target), *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert all(word in error for word in words), error
    assert not target.exists()


def test_unknown_format_is_refused(metrics, tmp_path):
    """An ending that matplotlib does not know is refused with the path."""
    with pytest.raises(InterlockError, match=r"cannot write .*c\.xyz"):
        plot_metrics(metrics, tmp_path / "c.xyz")


def test_matplotlib_is_asked_for_only_when_drawing(metrics, tmp_path, monkeypatch):
    """Without matplotlib files can be read, and drawing says how to get it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert read_series(metrics)
    with pytest.raises(InterlockError, match=r'pip install "interlock\[plot\]"'):
        plot_metrics(metrics, tmp_path / "c.png")


def test_the_module_imports_neither_torch_nor_matplotlib():
    """Reading metrics files costs no heavy import."""
    code = "import sys, core.loggers.plots; print({'torch', 'matplotlib', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"

"""The progress bar, drawn into a string with a clock that moves on by itself."""

import io
import pickle
import sys
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from torch.utils.data import DataLoader

from core import Callback, Module, Trainer
from core.callbacks import ProgressBar
from core.callbacks.progress_bar import format_metrics, format_time, join_parts

TICK = 0.01


class Net(Module):
    """Logs a value of each step, the mean over the epoch if asked to, and one in validation."""

    def __init__(self, over_epoch: bool = False):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.over_epoch = over_epoch

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).sum() * 0
        self.log("loss", loss + batch_idx, prog_bar=True)
        self.log("hidden", 7.0)
        if self.over_epoch:
            self.log("mean_loss", loss + batch_idx, prog_bar=True, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", 0.25, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Replace the bar's clock by one that is TICK later at each look."""
    now = 0.0

    def monotonic():
        nonlocal now
        now += TICK
        return now

    monkeypatch.setattr("core.callbacks.progress_bar.time", SimpleNamespace(monotonic=monotonic))


def make_console(terminal, width=120):
    return Console(
        file=io.StringIO(),
        width=width,
        height=30,
        force_terminal=terminal,
        force_interactive=terminal,
        color_system=None,
        _environ={"TERM": "xterm"},
    )


def shown(net, console, refresh_every=0.0, batches=3, callbacks=(), **arguments):
    """Fit and return everything that the bar wrote."""
    arguments = {"max_epochs": 2, **arguments}
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        callbacks=[*callbacks, ProgressBar(refresh_every, console)],
        **arguments,
    )
    data = DataLoader(torch.ones(4 * batches - 1, 1), batch_size=4)
    trainer.fit(net, data, data)
    return console.file.getvalue()


def test_without_a_terminal_each_epoch_is_one_line():
    """Where there is no terminal, each epoch is one plain line, with the values meant for the bar and no others."""
    lines = shown(Net(), make_console(terminal=False)).splitlines()
    assert [line.split()[:2] for line in lines] == [["epoch", "1/2"], ["epoch", "2/2"]]
    assert lines[1].endswith("samples/s  loss 2.0000  val_loss 0.2500")


def test_a_terminal_shows_count_speed_time_left_and_values():
    """The live bar shows the batches done, samples per second, the time left and the values, and that it validates."""
    text = shown(Net(), make_console(terminal=True))
    assert "2/3" in text
    assert "samples/s" in text
    assert "0:00 left" in text
    assert "loss 1.0000" in text
    assert "validating" in text
    assert "hidden" not in text


def test_finished_epochs_stay_as_lines_and_the_bar_goes():
    """At the end the terminal holds one line for each epoch and no bar."""
    text = shown(Net(), make_console(terminal=True))
    after_bar = text.rsplit("\x1b[2K", 1)[-1]
    assert "━" not in after_bar
    assert text.count("epoch 1/2  0.") == text.count("epoch 2/2  0.") == 1


@pytest.mark.parametrize(("width", "lines"), [(120, 1), (70, 2)])
def test_values_go_below_the_bar_where_it_is_narrow(width, lines):
    """Values stand beside the bar where there is room for them, else on a line of their own, never cut off."""
    beside = make_console(terminal=False, width=width)

    class Look(Callback):
        def on_train_end(self, trainer, module):
            bar = next(c for c in trainer.callbacks if isinstance(c, ProgressBar))
            beside.print(bar._picture(trainer, 2, ""))

    shown(Net(), make_console(terminal=True, width=width), callbacks=[Look()])
    picture = beside.file.getvalue().splitlines()
    assert len(picture) == lines
    assert picture[-1].rstrip().endswith("loss 2.0000  val_loss 0.2500")


def test_a_finished_epoch_shows_its_mean():
    """The line of a finished epoch has the mean over it, and then not the value of its last step."""
    line = shown(Net(over_epoch=True), make_console(terminal=False)).splitlines()[0]
    assert "mean_loss 0.9091" in line  # batches of 4, 4 and 3: (0*4 + 1*4 + 2*3) / 11
    assert " loss " not in line


def test_speed_counts_samples_exactly():
    """Samples per second count a smaller last batch as it is, also in epochs shorter than a refresh."""
    lines = shown(Net(), make_console(terminal=False), refresh_every=1e9).splitlines()
    for line in lines:
        # 11 samples, and one look at the clock at the epoch's start and after each of three batches
        assert f"  {11 / (3 * TICK):,.0f} samples/s  " in line


def test_speed_covers_all_ranks_and_leaves_validation_out():
    """The speed is that of all processes together, over the time spent training."""
    bar = ProgressBar(console=make_console(terminal=False))
    bar._epoch_start, bar._last, bar._batches, bar._size, bar._last_size = 10.0, 12.0, 3, 8, 4
    assert bar._speed(SimpleNamespace(world_size=4)) == "40 samples/s"


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_epochs": 10, "max_steps": -1}, "0:18 left"),  # 2 of 20 batches took 2 s
        ({"max_epochs": -1, "max_steps": 6}, "0:05 left"),  # 1 of 6 steps of 1 batch is done
        ({"max_epochs": 10, "max_steps": 6}, "0:05 left"),
        ({"max_epochs": -1, "max_steps": -1}, ""),
    ],
)
def test_time_left_follows_what_ends_first(monkeypatch, limits, left):
    """The time left goes to the end of epochs or steps, whichever comes first, and is not shown where there is none."""
    monkeypatch.setattr("core.callbacks.progress_bar.time", SimpleNamespace(monotonic=lambda: 2.0))
    bar = ProgressBar()
    bar._total, bar._batches, bar._fit_start = 2, 2, 0.0
    trainer = SimpleNamespace(current_epoch=0, global_step=1, accumulate_grad_batches=1, **limits)
    assert bar._time_left(trainer, done=2) == left


def test_loaders_without_a_length_show_a_count():
    """Where the loader has no length, the bar counts batches and knows no time left."""
    console = make_console(terminal=True)
    trainer = Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=1, callbacks=ProgressBar(0.0, console)
    )
    trainer.fit(Net(), (torch.ones(2, 1) for _ in range(3)))
    text = console.file.getvalue()
    assert " 3  " in text
    assert "left" not in text


def test_a_failed_run_leaves_its_bar_and_gives_the_terminal_back():
    """When a step raises, the bar stays to be looked at, the cursor is shown again and print works as before."""

    class Fails(Net):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                raise ValueError("this step fails")
            return super().training_step(batch, batch_idx)

    console, stdout, stderr = make_console(terminal=True), sys.stdout, sys.stderr
    with pytest.raises(ValueError, match="this step fails"):
        shown(Fails(), console)
    assert (sys.stdout, sys.stderr) == (stdout, stderr)
    text = console.file.getvalue()
    assert "2/3" in text.rsplit("\x1b[2K", 1)[-1]
    assert text.rstrip().endswith("\x1b[?25h")


def test_only_rank_zero_draws():
    """A process that is not rank 0 writes nothing."""
    bar = ProgressBar(console=make_console(terminal=True))
    trainer = SimpleNamespace(is_global_zero=False)
    bar.on_fit_start(trainer, None)
    bar.on_train_epoch_start(trainer, None)
    bar.on_train_batch_end(trainer, None, None, None, 0)
    bar.on_validation_start(trainer, None)
    bar.on_train_epoch_end(trainer, None)
    bar.teardown(trainer, None, "fit")
    assert bar._console.file.getvalue() == ""


def test_a_second_fit_shows_its_progress_too():
    """One bar serves several fits."""
    console = make_console(terminal=False)
    bar = ProgressBar(console=console)
    for _ in range(2):
        trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=1, callbacks=bar)
        trainer.fit(Net(), DataLoader(torch.ones(3, 1)))
    assert console.file.getvalue().count("epoch 1/1") == 2


def test_travels_without_its_console():
    """The bar can be sent to another process, and draws with that process's console there."""
    bar = pickle.loads(pickle.dumps(ProgressBar(0.5, make_console(terminal=True))))
    assert (bar.refresh_every, bar._console) == (0.5, None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (0.6, "0:01"), (59.4, "0:59"), (59.6, "1:00"), (3600, "1:00:00"), (90061, "25:01:01")],
)
def test_times(seconds, text):
    """Times are minutes and seconds, with hours where there are any."""
    assert format_time(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5000"),
        (0, "0.0000"),
        (-12.25, "-12.2500"),
        (1e-5, "1e-05"),
        (123456.0, "1.23e+05"),
        (float("nan"), "nan"),
    ],
)
def test_numbers(value, text):
    """Values of common size are equally wide, and very small or large ones keep their digits."""
    assert format_metrics({"x": value}) == [f"x {text}"]


@pytest.mark.parametrize(
    ("width", "text"),
    [(None, "loss 1  acc 2  speed 3"), (14, "loss 1  acc 2\n  speed 3"), (3, "loss 1\n  acc 2\n  speed 3")],
)
def test_long_lines_break_between_values(width, text):
    """A line wider than the terminal goes on below, indented; a name is not parted from its value."""
    assert join_parts(["loss 1", "acc 2", "speed 3"], width) == text

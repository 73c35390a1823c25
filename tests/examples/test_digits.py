"""The digits example, run as a user runs it."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "examples" / "digits.py"


class Ended(NamedTuple):
    """One run of the example: its folder, what it said, and its summary."""

    out: Path
    stdout: str
    summary: dict[str, Any]


def start(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=110, check=False)


def train(cwd: Path, *arguments: object) -> Ended:
    done = start(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    out = cwd / "runs" / "digits"
    return Ended(out, done.stdout, json.loads((out / "summary.json").read_text()))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Run the example as ``make demo`` does: two processes, sharded."""
    return train(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Run one epoch in one process, into a folder where an earlier run left a metrics file."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "runs" / "digits").mkdir(parents=True)
    (folder / "runs" / "digits" / "metrics.csv").write_text("epoch,step,loss\n7,700,9.9\n")
    return train(folder, "--strategy", "single_device", "--devices", 1, "--epochs", 1)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location("digits_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.processes
def test_demo_learns_the_digits(demo):
    """With its defaults the example reaches 97 % on the digits it did not train on."""
    assert demo.summary["val_acc"] >= 0.97


@pytest.mark.processes
def test_demo_says_its_plan_once_and_where_it_wrote(demo):
    """One process speaks: the plan first, then a line for each file, and the files are there."""
    assert demo.stdout.startswith("plan\n")
    assert demo.stdout.count("accelerator   cpu") == 1
    said = dict(line.split() for line in demo.stdout.splitlines()[-4:])
    assert list(said) == ["checkpoint", "metrics", "curves", "summary"]
    for path in said.values():
        assert (demo.out.parents[1] / path).stat().st_size > 0


@pytest.mark.processes
def test_demo_summary_holds_what_ran(demo):
    """The summary has the plan's three plugins and the number of processes."""
    plan = demo.summary["plan"]
    assert [plan[kind]["name"] for kind in ("accelerator", "precision", "strategy")] == [
        "cpu",
        "32-true",
        "ddp_sharded",
    ]
    assert demo.summary["world_size"] == plan["world_size"] == 2
    assert demo.summary["epochs"] == 20


@pytest.mark.processes
def test_demo_accuracy_is_the_checkpoints_over_each_image_once(demo, example):
    """The reported accuracy is what the saved checkpoint gives on the 360 validation images, each counted once."""
    saved = torch.load(demo.out / "digits.ckpt", weights_only=True)
    model = example.Digits(lr=0.1, epochs=1)
    model.load_state_dict(saved["state_dict"])
    _, loader = example.make_loaders(batch_size=32)
    images, labels = loader.dataset.tensors
    with torch.no_grad():
        right = (model.eval()(images).argmax(1) == labels).sum().item()
    assert len(labels) == 360
    assert demo.summary["val_acc"] == pytest.approx(right / 360, abs=1e-6)


@pytest.mark.processes
def test_demo_metrics_hold_every_epoch(demo):
    """The metrics file has each epoch's training and validation values, and the picture is a PNG."""
    with open(demo.out / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for column in ("train_loss", "train_acc", "val_loss", "val_acc"):
        assert [int(row["epoch"]) for row in rows if row[column]] == list(range(20))
    assert (demo.out / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.processes
def test_demo_shards_the_optimizer_state(demo, alone):
    """Each of the two processes holds a part of the optimizer state, and the parts add up to what one alone holds."""
    parts = demo.summary["optimizer_state_bytes_per_rank"]
    (whole,) = alone.summary["optimizer_state_bytes_per_rank"]
    assert len(parts) == 2
    assert all(0 < part < whole for part in parts)
    assert sum(parts) == whole


def test_a_new_run_replaces_the_old_metrics(alone):
    """A run into a folder with an earlier run's metrics leaves its own only."""
    with open(alone.out / "metrics.csv", newline="") as file:
        assert {row["epoch"] for row in csv.DictReader(file)} == {"0"}


def test_help_shows_examples(tmp_path):
    """``--help`` lists the options with their defaults and ends with commands to copy."""
    done = start("--help", cwd=tmp_path)
    assert done.returncode == 0
    for option in ("--accelerator", "--strategy", "--devices", "--precision", "--epochs", "--batch-size", "--out"):
        assert option in done.stdout
    assert "(default: ddp_sharded)" in done.stdout
    assert "python examples/digits.py --strategy single_device --devices 1" in done.stdout


def test_what_cannot_work_is_said_without_a_traceback(tmp_path):
    """A combination that cannot work ends the example with the reasons, before anything is written."""
    done = start("--strategy", "single_device", "--devices", 2, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "single_device" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []

"""The examples run as a user would run them, at a small size."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(folder, name, *options):
    """Run an example in an empty folder and return what it printed."""
    command = [sys.executable, EXAMPLES / name, *options]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_transformer_learns_characters(tmp_path):
    """After an epoch on a little text the transformer is better than guessing, and writes something."""
    printed = run(tmp_path, "char_transformer.py", "--epochs=1", "--characters=20000")
    assert float(re.search(r"val_loss ([\d.]+)", printed)[1]) < 4.5
    assert "def " in printed
    assert list(tmp_path.glob("interlock_logs/version_0/checkpoints/*.ckpt"))


def test_the_gan_draws_its_picture(tmp_path):
    """The GAN trains by manual optimization, predicts points and draws them."""
    printed = run(tmp_path, "gan.py", "--epochs=1", "--picture=circle.png")
    assert "from the centre" in printed
    assert (tmp_path / "circle.png").stat().st_size > 1000


def test_fine_tuning_moves_the_body_late(tmp_path):
    """The frozen body moves once it is unfrozen, and both accuracies are those of a net that learned."""
    printed = run(tmp_path, "finetune.py", "--epochs=4")
    first, second, moved = map(float, re.findall(r"(\d+\.\d+)", printed)[-3:])
    assert first > 0.6
    assert second > 0.4
    assert moved > 0


def test_the_data_module_has_a_command_line(tmp_path):
    """fit and then test from the checkpoint that fit wrote."""
    pytest.importorskip("jsonargparse", reason="the extra cli is not installed")
    run(tmp_path, "datamodule.py", "fit", "--trainer.max_epochs=8")
    checkpoint = next(tmp_path.glob("interlock_logs/version_0/checkpoints/*.ckpt"))
    printed = run(tmp_path, "datamodule.py", "test", f"--ckpt_path={checkpoint}")
    assert float(re.search(r"test_acc\s+([\d.]+)", printed)[1]) > 0.7

"""A broken package that has nothing to do with a run: one warning, and the run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
from support.fake_dists import write_plugin
from support.reference import Net, dataset
from torch.utils.data import DataLoader

from core import Trainer

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

from core import Module, Trainer

class Net(Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    for _ in range(2):
        trainer = Trainer(accelerator="cpu", strategy="ddp", devices=2, max_steps=1, logger=False,
                          enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(Net(), DataLoader(torch.ones(8, 2), batch_size=2))
        print("trained", trainer.global_step, "on rank", trainer.global_rank)
"""
HEAD = "2 installed plugins are broken; this run does without"
ROWS = (
    "precision 'odd' from acme-odd 3.0, while import: ImportError: libodd.so: cannot open",
    "strategy 'ring' from acme-ring 2.1, while api: written for the newer API",
)
HINT = "INTERLOCK_BLOCK=acme-odd,acme-ring silences this"


def install(folder):
    """Install two broken packages."""
    ring = {"version": "2.1", "api": "API + 1"}
    odd = {"version": "3.0", "before": "raise ImportError('libodd.so: cannot open')"}
    write_plugin(folder, "acme-ring", "strategy", "ring", **ring)
    write_plugin(folder, "acme-odd", "precision", "odd", **odd)


def train():
    """Train one step on one device."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(accelerator="cpu", strategy="single_device", max_steps=1, **quiet, enable_model_summary=False)
    trainer.fit(Net(), DataLoader(dataset(1), batch_size=4))


@pytest.mark.filterwarnings("error")
def test_blocked_packages_are_silent(site, monkeypatch):
    """What the warning says to set silences it; and no run is warned of packages that are sound."""
    install(site.folder)
    write_plugin(site.folder, "acme-fine", "strategy", "fine")
    monkeypatch.setenv("INTERLOCK_BLOCK", HINT.split()[0].partition("=")[2])
    site.ready()
    train()


def test_a_warning_that_is_an_error_ends_the_run(site):
    """Where warnings are errors, as in a strict test run, the run does not begin."""
    install(site.folder)
    site.ready()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="2 installed plugins are broken") as raised:
            train()
    assert all(row in str(raised.value) for row in (*ROWS, HINT))


@pytest.mark.processes
def test_one_warning_for_all_ranks_and_runs(tmp_path):
    """Two runs on two ranks tell of the broken packages once: who, which version, why, and how to silence it."""
    site, script = tmp_path / "site", tmp_path / "script.py"
    install(site)
    script.write_text(SCRIPT)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=110,
        cwd=tmp_path,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count("trained") == 4, said
    assert said.count(HEAD) == 1, said
    assert all(said.count(row) == 1 for row in (*ROWS, HINT)), said

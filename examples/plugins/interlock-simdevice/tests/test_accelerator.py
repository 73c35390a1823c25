"""Training on the simulated device through the Trainer, with strategies that know nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import job
import pytest
import torch
from interlock_simdevice import SimAccelerator

from core import Trainer
from core.errors import InvalidArgument, InvalidCombination

ALONE = {"strategy": "single_device"}


def assert_same(one: dict, other: dict) -> None:
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_one_device_trains_as_the_cpu_does():
    """single_device on sim gives the weights of single_device on cpu, to the bit."""
    assert_same(job.train("sim", **ALONE), job.train("cpu", **ALONE))


@pytest.mark.processes
def test_ddp_trains_as_on_the_cpu(tmp_path):
    """ddp needs a collective and no device's name: over sim and gloo it gives the weights of cpu, on both ranks."""
    command = [sys.executable, str(Path(__file__).with_name("job.py")), str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        both = torch.load(tmp_path / f"out.{rank}", weights_only=True)
        assert_same(both["sim"], both["cpu"])


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_other_precisions_work_through_their_tokens(precision):
    """A precision that needs dtype.* works on the device, which provides it."""
    kind = {"64-true": torch.float64, "bf16-true": torch.bfloat16}[precision]
    weights = job.train("sim", precision=precision, max_epochs=1, gradient_clip_val=None, **ALONE)
    assert weights["net.4.weight"].dtype == kind


def test_auto_takes_it_before_the_cpu():
    """An environment in which it is installed trains on it where no accelerator was asked for."""
    plan = Trainer(strategy="single_device").plan
    assert plan.accelerator.name == "sim"
    assert plan.accelerator.distribution == "interlock-simdevice"


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_autocast_is_refused(precision):
    """It declares no autocast, so a precision that needs it is refused before anything runs."""
    with pytest.raises(InvalidCombination, match="accelerator 'sim'"):
        Trainer(accelerator="sim", precision=precision)


def test_a_misplaced_tensor_is_found():
    """A tensor made on the host inside a step raises, as it would on a GPU; on the CPU nobody would have noticed."""
    job.train("cpu", module=job.Classifier(misplaced=True), max_epochs=1, **ALONE)
    with pytest.raises(RuntimeError, match=r"two devices|same device"):
        job.train("sim", module=job.Classifier(misplaced=True), max_epochs=1, **ALONE)


def test_a_budget_that_is_too_small_ends_the_run():
    """The option is the device's memory: too little of it raises, and the plan shows it."""
    accelerator = SimAccelerator(memory_mb=0.01)
    assert "memory_mb=0.01" in str(Trainer(accelerator=accelerator, **ALONE).plan)
    with pytest.raises(torch.OutOfMemoryError):
        job.train(accelerator, **ALONE)
    job.train(SimAccelerator(memory_mb=64), max_epochs=1, **ALONE)


def test_a_checkpoint_is_read_on_both_devices(tmp_path):
    """What was saved on sim goes on on cpu, and equals the unbroken run."""
    path = str(tmp_path / "half.ckpt")
    job.train("sim", save=path, max_epochs=1, **ALONE)
    assert_same(job.train("cpu", resume=path, **ALONE), job.train("cpu", **ALONE))


def test_a_wrong_budget_is_refused():
    """A budget of nothing is refused where it is written."""
    with pytest.raises(InvalidArgument, match="memory_mb"):
        SimAccelerator(memory_mb=0)


def test_declaring_and_probing_import_no_torch():
    """Reading the declaration and probing cost no import of torch."""
    code = "import sys, interlock_simdevice.probe as p; p.probe(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0

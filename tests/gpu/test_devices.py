"""Which GPU a process takes, what is known of its memory, and that asking opens none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from support.reference import TESTS, Net, dataset, make_trainer
from torch.utils.data import DataLoader

from builtin_plugins.cuda.probe import probe
from core.callbacks.device_stats import DeviceStatsMonitor
from core.errors import PluginUnavailable
from core.plugins.binding import make_plugins
from core.session import Ranks
from core.tuner.devices import find_usable_cuda_devices

MAKE = """
import torch
from core import Trainer
print(Trainer(accelerator="cuda", devices=1, logger=False).plan)
assert not torch.cuda.is_initialized()
"""


def place(devices, local_rank):
    """Return the device that the process with this local rank takes."""
    plan = make_trainer(accelerator="cuda", devices=devices, strategy="auto").plan
    return make_plugins(plan, {})["accelerator"].device_index(Ranks(local_rank=local_rank))


def test_by_local_rank():
    """Without a list, a process takes the GPU with the number of its local rank."""
    assert [place(1, rank) for rank in range(2)] == [0, 1]


def test_from_a_list():
    """With a list, a process takes the GPU that stands in its place there."""
    last = torch.cuda.device_count() - 1
    assert place([last], 0) == last


def test_index_that_is_not_there():
    """A GPU that the machine does not have is refused with those it has."""
    count = torch.cuda.device_count()
    with pytest.raises(PluginUnavailable, match=f"device index {count} asked for"):
        make_trainer(accelerator="cuda", devices=[count])


def test_model_is_on_the_chosen_gpu():
    """The model and the batches of a run lie on the GPU that was asked for."""
    last = torch.cuda.device_count() - 1
    places = set()

    class Looks(Net):
        def training_step(self, batch, batch_idx):
            places.update({batch[0].device, next(self.parameters()).device})
            return super().training_step(batch, batch_idx)

    make_trainer(accelerator="cuda", devices=[last], max_epochs=1).fit(Looks(), DataLoader(dataset(1), batch_size=8))
    assert places == {torch.device("cuda", last)}


def test_count_without_opening():
    """The probe counts the GPUs that torch sees."""
    assert probe().count == torch.cuda.device_count()


def test_making_a_trainer_opens_no_gpu(tmp_path):
    """Making a Trainer leaves CUDA closed, so that processes can be forked and no memory is held."""
    script = tmp_path / "make.py"
    script.write_text(MAKE)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


def test_free_devices():
    """The picker names GPUs on which memory can be had."""
    (index,) = find_usable_cuda_devices(1)
    assert 0 <= index < torch.cuda.device_count()


def test_memory_statistics():
    """The statistics callback knows the memory that the run holds on the GPU."""
    seen = {}

    class Reads(DeviceStatsMonitor):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            seen.update(self.read(trainer))

    make_trainer(accelerator="cuda", max_epochs=1, callbacks=Reads()).fit(Net(), DataLoader(dataset(2), batch_size=8))
    assert seen["device/memory_allocated_mb"] > 0
    assert seen["device/memory_peak_mb"] >= seen["device/memory_allocated_mb"]

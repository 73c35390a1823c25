"""What cannot work on XLA is refused while the Trainer is made, and making one opens no device."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch_xla", reason="torch_xla is not installed; scripts/xla_env.sh makes an environment with it")

from support.reference import TESTS, make_trainer, run_script

from core.errors import InvalidCombination, PluginUnavailable
from core.registry import get_registry

MAKE = """
from core import Trainer
for strategy, devices in (("single_device", 1), ("xla_spawn", 1), ("xla_spmd", 4)):
    print(Trainer(accelerator="xla", strategy=strategy, devices=devices, logger=False).plan)
import torch_xla
assert not torch_xla._XLAC._xla_runtime_is_initialized()
"""

LATE = """
import sys
from torch_xla import runtime
from support.reference import Net, dataset, make_trainer
from torch.utils.data import DataLoader
if "first" in sys.argv:
    runtime.global_runtime_device_count()
loader = DataLoader(dataset(2), batch_size=8)
make_trainer(accelerator="cpu").fit(Net("sgd"), loader)
strategy, devices = sys.argv[1], int(sys.argv[2])
make_trainer(accelerator="xla", strategy=strategy, devices=devices).fit(Net("sgd"), loader)
"""


def test_no_device_is_opened(monkeypatch, tmp_path):
    """Making a Trainer, one after another for each strategy, leaves the XLA runtime closed."""
    for name, value in {"CPU_NUM_DEVICES": "4", "PYTHONPATH": str(TESTS.parent)}.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "make.py"
    script.write_text(MAKE)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "xla_spmd" in done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("strategy", "devices"), [("single_device", 1), ("xla_spmd", 4)])
def test_opened_after_a_backward_pass(monkeypatch, tmp_path, strategy, devices):
    """Training on xla after training on cpu in one process is refused with what to do, and doing that mends it."""
    monkeypatch.setenv("CPU_NUM_DEVICES", str(devices))
    script = tmp_path / "late.py"
    script.write_text(LATE)
    with pytest.raises(AssertionError, match=r"accelerator 'xla' cannot run here\n.*at the start of the program"):
        run_script(script, strategy, devices)
    run_script(script, strategy, devices, "first")


@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "apex"])
def test_half_precision(precision):
    """Precisions in float16 are refused by declaration."""
    with pytest.raises(InvalidCombination, match="nearest combinations"):
        make_trainer(accelerator="xla", precision=precision)


def test_two_processes_on_the_processors():
    """Two launched processes are refused, since over the processors' runtime they could exchange nothing."""
    with pytest.raises(InvalidCombination, match=r"collective\.xla") as caught:
        make_trainer(accelerator="xla", strategy="xla_spawn", devices=2)
    assert [violation.token for violation in caught.value.violations] == ["collective.xla | devices.one"]


def test_more_devices_than_there_are():
    """More devices than CPU_NUM_DEVICES are unavailable, with both numbers."""
    with pytest.raises(PluginUnavailable, match="4 devices asked for, xla has 1 here"):
        make_trainer(accelerator="xla", strategy="xla_spmd", devices=4)


def test_other_strategies():
    """Strategies that exchange tensors in ways of their own do not go with XLA, and need not know it."""
    registry = get_registry()
    fitting = {"single_device", "xla_spawn", "xla_spmd"}
    valid = registry.valid_combinations(make_trainer(accelerator="xla").plan.request, {"accelerator": "xla"})
    assert {combination.strategy for combination in valid} == fitting

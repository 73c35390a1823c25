"""What the XLA plugins say about themselves, and the order of their calls, with a stand-in for torch_xla.

tests/xla holds the real one to the loop by hand, in an environment of its own.
"""

from __future__ import annotations

import importlib
import sys

import pytest
import torch
from support import fake_xla
from support.reference import Net, dataset, make_trainer
from torch import nn
from torch.utils.data import DataLoader

from builtin_plugins.xla.probe import probe
from core import availability
from core.errors import InvalidCombination
from core.registry import get_registry

VARIABLES = ("PJRT_DEVICE", "CPU_NUM_DEVICES", "TPU_NUM_DEVICES")


def forget():
    """Forget the declarations and what is remembered about packages and devices."""
    get_registry.cache_clear()
    for remembered in (availability.installed_version, availability.package_problem, availability.run_probe):
        remembered.cache_clear()
    plugins = ("builtin_plugins.xla", "torch_xla")
    for name in [name for name in sys.modules if name.startswith(plugins)]:
        del sys.modules[name]


@pytest.fixture
def environment(monkeypatch):
    """Set the variables of the XLA runtime, and none that the shell has; then read the declarations again."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def use(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        forget()

    use()
    yield use
    forget()


@pytest.fixture
def xla(environment, tmp_path, monkeypatch):
    """Install the stand-in, and return a function that reads its events."""
    fake_xla.write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    environment(PJRT_DEVICE="CPU")
    return lambda: importlib.import_module("torch_xla").EVENTS


def note_steps(monkeypatch, events):
    """Note backward, clip and step among the events."""
    for holder, name, event in [
        (torch.Tensor, "backward", "backward"),
        (nn.utils, "clip_grad_norm_", "clip"),
        (torch.optim.SGD, "step", "step"),
    ]:
        real = getattr(holder, name)
        noted = lambda *a, real=real, event=event, **k: (events.append(event), real(*a, **k))[1]  # noqa: E731
        monkeypatch.setattr(holder, name, noted)


def train(strategy, devices):
    """Train four micro-batches in windows of two, clipped."""
    trainer = make_trainer(
        accelerator="xla",
        strategy=strategy,
        devices=devices,
        max_epochs=1,
        accumulate_grad_batches=2,
        gradient_clip_val=0.05,
    )
    trainer.fit(Net(), DataLoader(dataset(4), batch_size=8 // devices, shuffle=False))


@pytest.mark.parametrize(
    ("variables", "count", "reason"),
    [
        ({}, 0, "no TPU found"),
        ({"PJRT_DEVICE": "CPU"}, 1, ""),
        ({"PJRT_DEVICE": "cpu", "CPU_NUM_DEVICES": "4"}, 4, ""),
        ({"PJRT_DEVICE": "TPU"}, None, ""),
        ({"PJRT_DEVICE": "TPU", "TPU_NUM_DEVICES": "8"}, 8, ""),
        ({"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "many"}, 0, "CPU_NUM_DEVICES='many' is not a number"),
    ],
)
def test_count(environment, variables, count, reason):
    """The number of devices comes from the variables of the runtime; only opening a TPU would tell how many it has."""
    environment(**variables)
    answer = probe()
    assert answer.count == count
    assert answer.reason.startswith(reason)


def test_installed_is_no_reason(environment):
    """Where neither a TPU nor a variable asks for XLA, "auto" does not take it."""
    assert get_registry().find("accelerator", "xla").declaration.preference == 0
    environment(PJRT_DEVICE="CPU")
    assert get_registry().find("accelerator", "tpu").declaration.preference > 1


def test_half_precision(xla):
    """Scaled float16 is refused: the declaration has neither float16 autocast nor a scaler."""
    with pytest.raises(InvalidCombination) as caught:
        make_trainer(accelerator="xla", precision="16-mixed")
    assert {violation.token for violation in caught.value.violations} == {"autocast.float16", "grad_scaler"}


@pytest.mark.parametrize(("runtime", "devices", "valid"), [("CPU", 1, True), ("CPU", 2, False), ("TPU", 2, True)])
def test_processes(xla, environment, runtime, devices, valid):
    """Several processes are refused where the runtime cannot exchange tensors between them, and one never is."""
    environment(PJRT_DEVICE=runtime)
    if valid:
        assert make_trainer(accelerator="xla", strategy="xla_spawn", devices=devices).plan.world_size == devices
    else:
        with pytest.raises(InvalidCombination, match="lets no processes exchange tensors"):
            make_trainer(accelerator="xla", strategy="xla_spawn", devices=devices)


@pytest.mark.parametrize("name", ["single_device", "xla_spawn", "xla_spmd"])
def test_no_device_is_opened(xla, monkeypatch, name):
    """Making a Trainer opens no device and does not even import torch_xla."""
    monkeypatch.setenv("FAKE_XLA_CLOSED", "1")
    print(make_trainer(accelerator="xla", strategy=name).plan)
    assert "torch_xla" not in sys.modules


def test_order(xla, monkeypatch):
    """In each window: backward twice, then clip, step and mark step once."""
    events = xla()
    note_steps(monkeypatch, events)
    train("single_device", 1)
    assert events == ["open", *["backward", "backward", "clip", "step", "mark step"] * 2]


def test_order_in_a_launched_process(xla, monkeypatch):
    """One process goes through torch_xla.launch, which comes before the device is opened."""
    events = xla()
    note_steps(monkeypatch, events)
    train("xla_spawn", 1)
    assert events == ["launch alone", "open", *["backward", "backward", "clip", "step", "mark step"] * 2]


def test_order_with_two_processes(xla, environment, monkeypatch):
    """Two processes reduce once in each window: after its last backward, before clip, step and mark step."""
    environment(PJRT_DEVICE="TPU")
    events = xla()
    note_steps(monkeypatch, events)
    train("xla_spawn", 2)
    window = ["backward", "backward", "reduce", "clip", "step", "mark step"]
    assert events[:3] == ["launch", "open", "broadcast weights"]
    assert [event for event in events[3:] if event in window][: len(window)] == window

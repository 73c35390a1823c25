"""Making a Trainer: wrong arguments, one error each, and no trace of any of it."""

from __future__ import annotations

import os
import random
import re
import threading
from datetime import timedelta

import pytest
import torch
from support.reference import make_trainer
from torch import distributed, nn

from builtin_plugins.ddp.strategy import DDPStrategy
from core import CSVLogger, ModelCheckpoint, Trainer
from core.errors import InterlockError, InvalidArgument, InvalidCombination, UnknownPlugin, WrongType

NOT_WHOLE = [True, 1.5, "3", [1], object()]
NOT_A_FLAG = [1, 0, "yes", "False", [True]]
NOT_A_NUMBER = [True, "0.5", [1], object()]

WRONG_TYPES = {
    "max_epochs": NOT_WHOLE,
    "min_epochs": NOT_WHOLE,
    "max_steps": [*NOT_WHOLE, None],
    "min_steps": NOT_WHOLE,
    "accumulate_grad_batches": [*NOT_WHOLE, None, {0: 2}],
    "check_val_every_n_epoch": NOT_WHOLE,
    "log_every_n_steps": [*NOT_WHOLE, None],
    "num_sanity_val_steps": NOT_WHOLE,
    "reload_dataloaders_every_n_epochs": [*NOT_WHOLE, None],
    "num_nodes": [*NOT_WHOLE, None],
    "fast_dev_run": [1.5, "yes", None],
    "gradient_clip_val": NOT_A_NUMBER,
    "limit_train_batches": NOT_A_NUMBER,
    "limit_val_batches": NOT_A_NUMBER,
    "limit_test_batches": NOT_A_NUMBER,
    "limit_predict_batches": NOT_A_NUMBER,
    "overfit_batches": NOT_A_NUMBER,
    "val_check_interval": NOT_A_NUMBER,
    "enable_checkpointing": NOT_A_FLAG,
    "enable_progress_bar": NOT_A_FLAG,
    "enable_model_summary": NOT_A_FLAG,
    "inference_mode": [*NOT_A_FLAG, None],
    "use_distributed_sampler": [*NOT_A_FLAG, None],
    "detect_anomaly": [*NOT_A_FLAG, None],
    "sync_batchnorm": [*NOT_A_FLAG, None],
    "deterministic": [1, 0, "yes", [True]],
    "benchmark": NOT_A_FLAG,
    "max_time": [5, 1.5, [1]],
    "devices": [True, 1.5, None, object(), {0}, ["0"], [True], [1.0]],
    "accelerator": [True, 1, object(), ["cpu"], torch.device("cpu"), nn.Linear, DDPStrategy],
    "strategy": [True, 1, object(), ["ddp"], DDPStrategy, nn.Linear(1, 1)],
    "precision": [True, 32.0, object(), [16], torch.float16],
    "logger": ["csv", 5, [5], object(), CSVLogger],
    "callbacks": [5, [5], object(), [None], ModelCheckpoint],
    "default_root_dir": [5, True, ["logs"]],
}
WRONG_VALUES = {
    "max_epochs": [-2, -100],
    "max_steps": [-2],
    "min_epochs": [-1],
    "min_steps": [-1],
    "accumulate_grad_batches": [0, -1],
    "check_val_every_n_epoch": [0, -1],
    "log_every_n_steps": [0, -5],
    "num_sanity_val_steps": [-2],
    "reload_dataloaders_every_n_epochs": [-1],
    "num_nodes": [0, -1],
    "fast_dev_run": [-1],
    "gradient_clip_val": [-0.1, float("nan")],
    "gradient_clip_algorithm": ["l2", "", "NORM", 2, ["norm"]],
    "limit_train_batches": [-1, -0.5, 1.5, float("nan"), float("inf")],
    "limit_val_batches": [-1, 1.01],
    "limit_test_batches": [-1, 2.0],
    "limit_predict_batches": [-0.1],
    "overfit_batches": [-1, 1.5],
    "val_check_interval": [0, -1, 0.0, 1.5, float("nan")],
    "max_time": ["5", "1:2:3", "a:b:c:d", {"weeks": 1, "parsecs": 2}],
    "devices": [0, -2, "0", "", "a", "1.5", [], [0, 0], [-1], "0,0", ","],
    "accelerator": [""],
    "strategy": [""],
    "precision": [""],
}
UNKNOWN = {"accelerator": ["cdua"], "strategy": ["ddp_shared", "none"], "precision": [8, "fp17", "half"]}


def spelled(value):
    """Return the value as a test's id shows it: without addresses, which differ between the workers of one run."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def cases(table):
    """Return each argument with each of its values."""
    pairs = [(name, value) for name, values in table.items() for value in values]
    ids = [spelled(f"{name}={value!r}")[:50] for name, value in pairs]
    return pytest.mark.parametrize(("name", "value"), pairs, ids=ids)


def state_of_the_process():
    """Return what a Trainer must not touch."""
    return {
        "environment": {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        "folder": os.getcwd(),
        "dtype": torch.get_default_dtype(),
        "threads_of_torch": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "cudnn": torch.backends.cudnn.deterministic,
        "grad": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "group": distributed.is_initialized(),
        "cuda": torch.cuda.is_initialized(),
        "threads": {thread.name for thread in threading.enumerate()},
        "random": (random.getstate(), torch.get_rng_state().tolist()),
        "files": sorted(os.listdir(".")),
    }


@pytest.fixture(autouse=True)
def leaves_no_trace(tmp_path, monkeypatch):
    """Run each test in a folder of its own and compare the process before it and after."""
    monkeypatch.chdir(tmp_path)
    before = state_of_the_process()
    yield
    assert state_of_the_process() == before


def refusal(name, value):
    """Return the error that a Trainer with this argument raises."""
    with pytest.raises(InterlockError) as caught:
        Trainer(**{"accelerator": "cpu", name: value})
    return caught.value


@cases(WRONG_TYPES)
def test_wrong_type(name, value):
    """A value of another type is one WrongType that names the argument, whatever it is, and leaves no trace."""
    error = refusal(name, value)
    assert type(error) is WrongType
    assert isinstance(error, TypeError)
    assert str(error).startswith(name)


@cases(WRONG_VALUES)
def test_wrong_value(name, value):
    """A value outside its range is one InvalidArgument that names argument and value, and leaves no trace."""
    error = refusal(name, value)
    assert type(error) is InvalidArgument
    assert str(error).startswith(name)


@cases(UNKNOWN)
def test_unknown_name(name, value):
    """A name that no plugin has is one UnknownPlugin, and leaves no trace."""
    error = refusal(name, value)
    assert type(error) is UnknownPlugin
    assert (error.kind, error.name) == (name, str(value))


@pytest.mark.parametrize(
    "arguments",
    [
        {"devices": [0, 1]},
        {"num_nodes": 2},
        {"strategy": "single_device", "devices": 2},
        {"sync_batchnorm": True, "strategy": "ddp", "devices": 2},
        {"devices": -1},
    ],
    ids=spelled,
)
def test_invalid_combination(arguments):
    """What contradicts itself is one InvalidCombination with a reason for each broken rule, and leaves no trace."""
    with pytest.raises(InvalidCombination) as caught:
        Trainer(accelerator="cpu", **arguments)
    assert caught.value.violations
    assert all(violation.reason for violation in caught.value.violations)


def test_contradicting_arguments():
    """Two arguments that contradict each other are refused at once."""
    with pytest.raises(InvalidArgument, match="enable_checkpointing=False"):
        Trainer(accelerator="cpu", callbacks=ModelCheckpoint(), enable_checkpointing=False)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"strategy": "ddp", "devices": 2},
        {"strategy": "ddp_spawn", "devices": 2},
        {"strategy": "ddp_sharded", "devices": 2},
        {"strategy": DDPStrategy(static_graph=True), "devices": 2},
        {"precision": "64-true"},
        {"precision": 16, "gradient_clip_val": 1.0, "accumulate_grad_batches": 4},
        {"deterministic": True, "benchmark": False, "detect_anomaly": True},
        {"max_time": timedelta(hours=1), "max_epochs": -1},
        {"fast_dev_run": True},
    ],
    ids=spelled,
)
def test_good_arguments(arguments):
    """Making a Trainer opens no group and no device, starts nothing and sets nothing; it makes a plan."""
    trainer = Trainer(accelerator="cpu", **arguments)
    assert "plan" in str(trainer.plan)


@pytest.mark.parametrize("call", ["fit", "validate", "test", "predict"])
@pytest.mark.parametrize(
    ("module", "data", "kind", "words"),
    [
        (5, [1], WrongType, "takes an nn.Module, not int 5"),
        (nn.Linear, [1], WrongType, "takes an nn.Module, not its class"),
        (nn.Linear(1, 1), [1], InterlockError, "Linear has no"),
    ],
    ids=["number", "class", "no_methods"],
)
def test_wrong_module(call, module, data, kind, words):
    """A run of something that is no module, or lacks what is called, is one error before anything starts."""
    with pytest.raises(kind, match=words):
        getattr(make_trainer(), call)(module, data)


@pytest.mark.parametrize(
    ("past", "now"),
    [
        ({"gpus": 2}, 'accelerator="cuda", devices=2'),
        ({"gpus": "0,1"}, "accelerator=\"cuda\", devices='0,1'"),
        ({"num_processes": 4}, 'accelerator="cpu", devices=4'),
        ({"tpu_cores": 8}, 'accelerator="xla", devices=8'),
        ({"distributed_backend": "ddp"}, "strategy='ddp'"),
        ({"resume_from_checkpoint": "a.ckpt"}, "trainer.fit(..., ckpt_path='a.ckpt')"),
        ({"checkpoint_callback": False}, "enable_checkpointing=False"),
        ({"replace_sampler_ddp": False}, "use_distributed_sampler=False"),
        ({"weights_save_path": "w"}, "callbacks=[ModelCheckpoint(dirpath='w')]"),
        ({"stochastic_weight_avg": True}, "callbacks=[StochasticWeightAveraging(swa_lrs=...)]"),
    ],
    ids=str,
)
def test_argument_from_the_past(past, now):
    """An argument that peers once had is refused with what to write now, its value written into it."""
    ((name, value),) = past.items()
    with pytest.raises(InvalidArgument) as caught:
        Trainer(**past)
    assert f"  - {name}={value!r} is from the past; write {now}" in str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("kind", "name", "now"),
    [
        ("accelerator", "mps", "install a package that brings an accelerator plugin for it"),
        ("precision", "half", 'precision="16-true"'),
        ("precision", "double", 'precision="64-true"'),
        ("precision", "amp", 'precision="16-mixed"'),
        ("precision", "full", 'precision="32-true"'),
        ("strategy", "fairscale", 'strategy="ddp_sharded"'),
        ("strategy", "deepspeed", 'strategy="fsdp"'),
    ],
)
def test_name_from_elsewhere(kind, name, now):
    """A name that people know from elsewhere is refused with what to write here."""
    with pytest.raises(UnknownPlugin, match=re.escape(now)):
        Trainer(**{kind: name})


def test_barebones_runs_the_loop_alone(tmp_path):
    """barebones=True has no logger, checkpoint, bar, summary or sanity check, unless one is asked for by name."""
    bare = Trainer(accelerator="cpu", barebones=True, default_root_dir=tmp_path, max_epochs=1)
    assert (bare.loggers, bare.callbacks, bare.num_sanity_val_steps) == ([], [], 0)
    own = Trainer(accelerator="cpu", barebones=True, logger=CSVLogger(tmp_path), enable_checkpointing=True)
    assert [type(each) for each in (*own.loggers, *own.callbacks)] == [CSVLogger, ModelCheckpoint]

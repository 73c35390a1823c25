"""Checkpoint files: what is in them, how they are written, and which are refused."""

from __future__ import annotations

import enum
import os
import resource
import signal
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from support.reference import GLOBAL_BATCH, Net, dataset, make_trainer
from torch import nn
from torch.utils.data import DataLoader

from builtin_plugins.fp16_mixed.precision import Float16MixedPrecision
from core import Callback
from core.checkpoint import read_checkpoint, write_checkpoint
from core.errors import CheckpointError, InterlockError, WrongType


def fitted(kind="adam", **arguments):
    """Return a Trainer after two epochs and its module."""
    module = Net(kind)
    trainer = make_trainer(**{"max_epochs": 2, **arguments})
    trainer.fit(module, DataLoader(dataset(3), GLOBAL_BATCH))
    return trainer, module


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of the reference net with Adam."""
    trainer, _ = fitted()
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


def test_contents(tmp_path):
    """One file, plain torch.load reads it, and it says which plugins of which versions wrote it."""
    trainer, module = fitted(precision=Float16MixedPrecision(init_scale=64.0))
    trainer.save_checkpoint(tmp_path / "folder" / "last.ckpt")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["last.ckpt"]
    checkpoint = torch.load(tmp_path / "folder" / "last.ckpt", weights_only=True)
    assert (checkpoint["epoch"], checkpoint["global_step"]) == (2, 6)
    for name, value in module.state_dict().items():
        assert torch.equal(checkpoint["state_dict"][name], value)
    assert checkpoint["optimizer_states"][0]["state"][0].keys() == {"step", "exp_avg", "exp_avg_sq"}
    plan = checkpoint["interlock"]["plan"]
    for chosen in trainer.plan.chosen:
        written = plan[chosen.declaration.kind]
        assert (written["name"], written["distribution"]) == (chosen.name, chosen.distribution)
        assert written["version"] == chosen.version
    assert plan["precision"]["options"]["init_scale"] == 64.0
    assert checkpoint["plugins"]["precision"]["scale"] == 64.0


def test_weights_only(tmp_path):
    """weights_only leaves out all but the weights; evaluation reads the file, and training refuses it beforehand."""
    trainer, module = fitted()
    trainer.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    assert not {"optimizer_states", "loop"} & read_checkpoint(tmp_path / "weights.ckpt").keys()
    other = Net("adam")
    refuse(other, tmp_path / "weights.ckpt", "holds weights only; optimizer_states, loop, lr_schedulers missing")

    class Evaluated(Net):
        def validation_step(self, batch, batch_idx):
            self.log("loss", super().training_step(batch, batch_idx))

    fresh = Evaluated()
    loader = DataLoader(dataset(1), GLOBAL_BATCH)
    make_trainer().validate(fresh, loader, ckpt_path=tmp_path / "weights.ckpt", verbose=False)
    assert torch.equal(fresh.first[0].weight, module.first[0].weight)


def refuse(module, path, words):
    """Check that training from ``path`` is refused with these words and the file's name before any step."""
    steps = []

    class Note(Callback):
        def on_train_start(self, trainer, module):
            steps.append(trainer.global_step)

    with pytest.raises(CheckpointError) as caught:
        make_trainer(max_epochs=3, callbacks=Note()).fit(module, DataLoader(dataset(3), GLOBAL_BATCH), ckpt_path=path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert steps == []


def test_missing_file(tmp_path):
    """A file that is not there is refused by its name, and so is a folder of something else."""
    refuse(Net("adam"), tmp_path / "none.ckpt", "does not exist")
    refuse(Net("adam"), tmp_path, "is a folder without checkpoint.pt, so it is no checkpoint")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("damage", ["empty", "half", "garbage", "text"])
def test_damaged_file(saved, damage):
    """A damaged file is refused by its name, however it is damaged."""
    whole = saved.read_bytes()
    damaged = {"empty": b"", "half": whole[: len(whole) // 2], "garbage": b"\x80\x04 bytes" * 99, "text": b"hello"}
    saved.write_bytes(damaged[damage])
    cut = "it was cut short, or torch.save did not write it"
    said = {"empty": "it is empty", "half": cut, "garbage": "Unsupported operand", "text": cut}[damage]
    refuse(Net("adam"), saved, f"is damaged or not a checkpoint: {said}")


class Secret:
    """A type that is not plain."""


def test_file_that_would_run_code(tmp_path):
    """A file with other types than plain ones is refused with the type's name and the explicit way to read it."""
    torch.save({"state_dict": {}, "what": Secret()}, tmp_path / "foreign.ckpt")
    refuse(Net("adam"), tmp_path / "foreign.ckpt", f"holds a {__name__}.Secret")
    refuse(Net("adam"), tmp_path / "foreign.ckpt", "weights_only=False")


def test_file_without_weights(tmp_path):
    """A file of something else is refused with what is missing."""
    torch.save({"anything": 1}, tmp_path / "other.ckpt")
    refuse(Net("adam"), tmp_path / "other.ckpt", "holds no weights")
    torch.save(Net("adam").state_dict(), tmp_path / "state.pt")
    refuse(Net("adam"), tmp_path / "state.pt", "holds the tensors of a state_dict alone")
    refuse(Net("adam"), tmp_path / "state.pt", "hint: read it with module.load_state_dict")
    torch.save({"state_dict": {}, "pytorch-lightning_version": "2.6", "loops": {}}, tmp_path / "foreign.ckpt")
    refuse(Net("adam"), tmp_path / "foreign.ckpt", "of another framework, of which the weights can be used")
    torch.save([1, 2], tmp_path / "list.ckpt")
    refuse(Net("adam"), tmp_path / "list.ckpt", "holds a list, not a dictionary")


def test_other_optimizers(saved):
    """Another number of optimizers, or other parameter groups, are refused with both numbers."""
    refuse(Net("two"), saved, "holds 1 optimizers, the module configures 2")
    refuse(Net("groups"), saved, "it holds parameter groups of [8] tensors, the module configures groups of [4, 4]")


def test_other_schedulers(saved):
    """Another number of schedulers is refused with both numbers."""

    class Scheduled(Net):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    refuse(Scheduled("adam"), saved, "holds 0 schedulers, the module configures 1")


def test_other_module(saved):
    """Weights of other names or shapes are refused with what torch says of them."""

    class Wider(Net):
        def __init__(self):
            super().__init__("adam")
            self.first[0] = nn.Linear(6, 10)

    refuse(Wider(), saved, "does not fit Wider")
    refuse(Wider(), saved, "size mismatch for first.0.weight")


def test_written_by_other_plugins(saved):
    """A file that other plugins wrote is read with a warning that names both."""
    trainer = make_trainer(max_epochs=3, precision="64-true")
    with pytest.warns(UserWarning, match=r"precision: written by 32-true .*, read by 64-true"):
        trainer.fit(Net("adam"), DataLoader(dataset(3), GLOBAL_BATCH), ckpt_path=saved)
    assert trainer.global_step == 9


@pytest.mark.parametrize("place", ["file/as/folder/last.ckpt", "folder"])
def test_unwritable(tmp_path, place):
    """A place that cannot be written to raises with the path in it, and leaves nothing behind."""
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    trainer, _ = fitted()
    with pytest.raises(CheckpointError) as caught:
        trainer.save_checkpoint(tmp_path / place)
    assert str(tmp_path / place) in str(caught.value)
    assert caught.value.__cause__ is not None
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("size", [100, 3000], ids=["at once", "in the middle"])
def test_full_disk(saved, size):
    """Where a file cannot grow, an error names it and the system's reason, and the old one stands as the only file."""
    before = saved.read_bytes()
    trainer, _ = fitted()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"last\.ckpt' could not be written: .*File too large"):
            trainer.save_checkpoint(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["last.ckpt"]


SLOW_WRITER = """
import sys, time
import torch
from support.reference import Net, make_trainer, dataset, GLOBAL_BATCH
from torch.utils.data import DataLoader

path = sys.argv[1]
trainer = make_trainer(max_epochs=1)
trainer.fit(Net("adam"), DataLoader(dataset(3), GLOBAL_BATCH))
trainer.save_checkpoint(path)

def slowly(value, file):
    file.write(b"x" * 10_000)
    file.flush()
    print("writing", flush=True)
    time.sleep(60)

torch.save = slowly
trainer.save_checkpoint(path)
"""


@pytest.mark.processes
def test_killed_while_writing(tmp_path):
    """A program that is killed while it writes leaves the file before, whole, and no other under a final name."""
    path = tmp_path / "last.ckpt"
    modules = os.pathsep.join(str(folder) for folder in (Path(__file__).parents[3], Path(__file__).parents[2]))
    environment = {**os.environ, "PYTHONPATH": modules, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_WRITER, path], stdout=subprocess.PIPE, text=True, env=environment
    ) as program:
        assert program.stdout.readline() == "writing\n"
        program.send_signal(signal.SIGKILL)
    assert [file.name for file in tmp_path.glob("*.ckpt")] == ["last.ckpt"]
    assert read_checkpoint(path)["global_step"] == 3
    trainer = make_trainer(max_epochs=2)
    trainer.fit(Net("adam"), DataLoader(dataset(3), GLOBAL_BATCH), ckpt_path=path)
    assert trainer.global_step == 6


class Colour(enum.Enum):
    """A choice."""

    RED = 1


class Stateful(Callback):
    """A callback with a state of the test's choice."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return {"mine": self.state}


@pytest.mark.parametrize("value", [Secret(), Colour.RED, nn.Linear(1, 1), np.zeros(3), {"deep": [Secret()]}])
def test_state_that_is_not_plain(tmp_path, value):
    """A callback's state that safe loading would refuse is refused when it is saved, with its place and its type."""
    trainer, _ = fitted(callbacks=Stateful(value))
    with pytest.raises(CheckpointError) as caught:
        trainer.save_checkpoint(tmp_path / "last.ckpt")
    kind = Secret if isinstance(value, dict) else type(value)
    assert "['callbacks']['Stateful']['mine']" in str(caught.value)
    assert f"{kind.__module__}.{kind.__qualname__}" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (Path("a") / "b", "a/b"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        ({Path("a"): {Path("b")}}, {"a": {"b"}}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
        (OrderedDict(a=1), OrderedDict(a=1)),
        (Counter("aab"), Counter("aab")),
        ((1, [2.5, None], True, "x", b"y", 1j), (1, [2.5, None], True, "x", b"y", 1j)),
        (torch.float16, torch.float16),
        (10**40, 10**40),
    ],
    ids=str,
)
def test_plain_types(tmp_path, value, read):
    """What is plain, or nearly so, is read back by safe loading."""
    write_checkpoint({"value": value}, tmp_path / "plain.ckpt")
    found = torch.load(tmp_path / "plain.ckpt", weights_only=True)["value"]
    assert found == read
    assert type(found) is type(read)


def test_states_that_share_a_place(tmp_path):
    """Two callbacks of one key are refused, as soon as they are given or when they have come to have states."""
    with pytest.raises(InterlockError, match="'Stateful'"):
        make_trainer(callbacks=[Stateful(1), Stateful(2)])

    class Late(Callback):
        steps = 0

        def on_train_batch_end(self, *_):
            self.steps += 1

        def state_dict(self):
            return {"steps": self.steps} if self.steps else {}

    trainer, _ = fitted(callbacks=[Late(), Late()])
    with pytest.raises(CheckpointError, match="two callbacks have the state_key"):
        trainer.save_checkpoint(tmp_path / "last.ckpt")


def test_saving_outside_a_run():
    """Before the first run there is nothing to save, and the error says when there is."""
    with pytest.raises(InterlockError, match="call it in a callback or after fit"):
        make_trainer().save_checkpoint("never.ckpt")


def test_what_is_no_path():
    """A ckpt_path of another type is refused by its name before anything else."""
    with pytest.raises(WrongType, match="ckpt_path must be a path, 'best' or 'last', not int 3"):
        make_trainer().fit(Net("adam"), DataLoader(dataset(3), GLOBAL_BATCH), ckpt_path=3)


def test_a_file_in_torchs_older_format_is_read(saved):
    """A checkpoint that was saved in the format from before torch 1.6, which cannot be mapped, goes on as well."""
    torch.save(torch.load(saved, weights_only=True), saved, _use_new_zipfile_serialization=False)
    trainer = make_trainer(max_epochs=3)
    trainer.fit(Net("adam"), DataLoader(dataset(3), GLOBAL_BATCH), ckpt_path=saved)
    assert trainer.global_step == 9


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"name": "theirs", "checkpoint": []}, "theirs writes or reads no full checkpoint"),
        ({"world_size": 4, "checkpoint": ["checkpoint.full"]}, "reads its checkpoints on the same number of processes"),
    ],
    ids=["another strategy", "another number of processes"],
)
def test_a_layout_that_is_not_exchanged_is_refused_first(saved, written, why):
    """A file of a strategy that declares no exchange is refused with both layouts, and the module is as it was."""
    checkpoint = torch.load(saved, weights_only=True)
    plan = checkpoint["interlock"]["plan"]
    plan["world_size"] = written.get("world_size", plan["world_size"])
    plan["strategy"] |= {name: value for name, value in written.items() if name != "world_size"}
    torch.save(checkpoint, saved)
    module = Net("adam")
    before = {name: value.clone() for name, value in module.state_dict().items()}
    refuse(module, saved, f"was written by {plan['strategy']['name']} on {plan['world_size']} processes and cannot be")
    refuse(module, saved, why)
    torch.testing.assert_close(dict(module.state_dict()), before, rtol=0, atol=0)

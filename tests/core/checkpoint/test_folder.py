"""Checkpoints to which each rank writes its part: written whole or not at all, read without running code."""

from __future__ import annotations

import os
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.checkpoint import read_checkpoint
from core.checkpoint.folder import read_into, write_folder
from core.checkpoint.parts import Stored, remove_checkpoint
from core.errors import CheckpointError

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
RUN: Any = SimpleNamespace(is_rank_zero=True, hooks=SimpleNamespace(barrier=lambda name, timeout: None))


def checkpoint(value: float = 1.0) -> dict[str, Any]:
    """Return a checkpoint of one layer and its optimizer."""
    state = {0: {"step": torch.tensor(3.0), "exp_avg": torch.full((2, 3), value)}}
    return {
        "epoch": 4,
        "state_dict": {"layer.weight": torch.full((2, 3), value), "extra": "text"},
        "optimizer_states": [{"state": state, "param_groups": [{"lr": 0.1, "params": [0]}]}],
    }


def test_folder_reads_as_a_plain_checkpoint(tmp_path):
    """What was written comes back with names, numbers, settings and tensors in their places."""
    write_folder(RUN, checkpoint(), str(tmp_path / "a.ckpt"))
    found = read_checkpoint(tmp_path / "a.ckpt")
    assert found["epoch"] == 4
    assert found["state_dict"]["extra"] == "text"
    assert found["state_dict"]["layer.weight"].equal(torch.ones(2, 3))
    (saved,) = found["optimizer_states"]
    assert saved["param_groups"] == [{"lr": 0.1, "params": [0]}]
    assert saved["state"][0]["exp_avg"].equal(torch.ones(2, 3))
    assert os.listdir(tmp_path) == ["a.ckpt"]


def test_tensors_can_stay_in_the_folder(tmp_path):
    """Who reads parts finds shape and dtype in a tensor's place, and fills what it likes from there."""
    write_folder(RUN, checkpoint(), str(tmp_path / "a.ckpt"))
    stored = read_checkpoint(tmp_path / "a.ckpt", mapped=True)["state_dict"]["layer.weight"]
    assert isinstance(stored, Stored)
    assert (stored.shape, stored.dtype) == ((2, 3), torch.float32)
    tensor = torch.zeros(2, 3)
    read_into(stored.folder, {stored.key: tensor})
    assert tensor.equal(torch.ones(2, 3))


def test_newer_checkpoint_takes_the_place_of_the_older(tmp_path):
    """Writing to the same name again leaves the new one alone, also after a run that broke off while writing."""
    (tmp_path / ".a.ckpt.partial").mkdir()
    (tmp_path / ".a.ckpt.partial" / "rubbish").touch()
    write_folder(RUN, checkpoint(1.0), str(tmp_path / "a.ckpt"))
    write_folder(RUN, checkpoint(2.0), str(tmp_path / "a.ckpt"))
    assert read_checkpoint(tmp_path / "a.ckpt")["state_dict"]["layer.weight"].equal(torch.full((2, 3), 2.0))
    assert os.listdir(tmp_path) == ["a.ckpt"]


def test_other_folders_are_left_alone(tmp_path):
    """A folder that holds no checkpoint is neither replaced nor removed."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="not one that holds a checkpoint"):
        write_folder(RUN, checkpoint(), str(tmp_path))
    remove_checkpoint(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_checkpoint_is_removed(tmp_path):
    """A folder of ours and an ordinary file are removed, and one that is not there is no error."""
    write_folder(RUN, checkpoint(), str(tmp_path / "a.ckpt"))
    (tmp_path / "b.ckpt").touch()
    for name in ("a.ckpt", "b.ckpt", "c.ckpt"):
        remove_checkpoint(tmp_path / name)
    assert os.listdir(tmp_path) == []


class Harmful:
    def __reduce__(self):
        return os.mkdir, (Harmful.path,)


@pytest.mark.parametrize("harmful", [Harmful(), torch.load, pickle.loads])
def test_description_that_would_run_code_is_refused(tmp_path, harmful):
    """A description that names anything but torch's own classes of it is refused before that is called."""
    Harmful.path = str(tmp_path / "made")
    write_folder(RUN, checkpoint(), str(tmp_path / "a.ckpt"))
    (tmp_path / "a.ckpt" / ".metadata").write_bytes(pickle.dumps(harmful))
    with pytest.raises(CheckpointError, match="does not belong there"):
        read_checkpoint(tmp_path / "a.ckpt")
    assert not os.path.exists(Harmful.path)


@pytest.mark.parametrize("name", ["checkpoint.pt", ".metadata", "__0_0.distcp"])
def test_folder_with_a_missing_file_is_refused(tmp_path, name):
    """A folder that lacks a file is refused, naming what is wrong."""
    write_folder(RUN, checkpoint(), str(tmp_path / "a.ckpt"))
    (tmp_path / "a.ckpt" / name).unlink()
    with pytest.raises(CheckpointError, match=r"a\.ckpt"):
        read_checkpoint(tmp_path / "a.ckpt")

"""Searches with two processes."""

import json
from pathlib import Path

import pytest
import torch
from support.hungry import Hungry, everything
from support.nets import quiet_trainer
from support.reference import run_script

from core.tuner import Tuner

pytestmark = pytest.mark.processes

HERE = Path(__file__).parent


def test_both_ranks_find_the_same(tmp_path):
    """With each strategy both ranks find the same, twice, and when one alone is out of memory, and train on.

    Nothing is left behind on either of them.
    """
    strategies = ["ddp", "ddp_sharded", "fsdp"]
    run_script(HERE / "searching_ranks.py", tmp_path, *strategies)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert list(first) == strategies
    for strategy, found in first.items():
        assert (found["power"], found["clean"], found["steps"]) == (32, True, 2), strategy
        assert found.get("again", 32) == 32
        assert found.get("lonely", 32) == 32, strategy
        assert len(found["losses"]) == 12


def test_spawned_ranks_bring_the_answer_home():
    """Where the ranks are processes of their own, the answer comes home and nothing else does."""
    torch.manual_seed(5)
    trainer, module = quiet_trainer(strategy="ddp_spawn", devices=2), Hungry(room=40)
    before = everything(trainer, module)
    assert Tuner(trainer).scale_batch_size(module, init_val=16) == 32
    assert (module.batch_size, module.hparams["batch_size"]) == (32, 32)
    module.batch_size = module.hparams["batch_size"] = 2
    assert everything(trainer, module) == before

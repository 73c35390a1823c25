"""The order of hooks is the one that users' code for a well-known trainer relies on."""

import json
import sys

import pytest
from support.hook_order import FIT, run
from support.scripts import run as run_script

import core


def test_one_epoch_calls_the_hooks_in_the_known_order(tmp_path):
    """One epoch of two batches with validation, all hooks filled, gives the recorded order."""
    assert run(core.Trainer, core.Module, core.Callback, tmp_path) == FIT


@pytest.mark.filterwarnings("ignore")
def test_the_peer_itself_gives_the_same_order(tmp_path):
    """The order above is the peer's own, and an unmodified module of the peer gets it from us."""
    pl = pytest.importorskip("lightning.pytorch", reason="the peer is not installed")
    assert run(pl.Trainer, pl.LightningModule, pl.Callback, tmp_path / "theirs") == FIT
    assert run(core.Trainer, pl.LightningModule, pl.Callback, tmp_path / "ours") == FIT


TWO_RANKS = """
import os, sys, warnings
from importlib.util import find_spec
from json import dumps
from pathlib import Path
import core
from support.hook_order import run

warnings.simplefilter("ignore")
rank, two = os.environ["RANK"], {"strategy": "ddp", "devices": 2}
seen = {"ours": run(core.Trainer, core.Module, core.Callback, "ours", **two)}
if find_spec("lightning"):
    import lightning.pytorch as pl
    seen["unmodified"] = run(core.Trainer, pl.LightningModule, pl.Callback, "unmodified", **two)
    import gc, torch.distributed
    gc.collect()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    seen["theirs"] = run(pl.Trainer, pl.LightningModule, pl.Callback, "theirs", **two)
Path(f"rank{rank}.json").write_text(dumps(seen))
"""


@pytest.mark.processes
def test_two_ranks_call_the_hooks_in_the_known_order(tmp_path):
    """With two ranks each has the same order, as the peer has; the data are prepared by the first rank of a node."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
    ended = run_script(tmp_path, TWO_RANKS, command=torchrun)
    assert ended.status == 0, ended
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    for order in first.values():
        assert order == FIT
    for order in second.values():
        assert order == [call for call in FIT if call != "m.prepare_data"]

"""How the processes of a run start: by running the program again as it was started, or not at all."""

import json
import sys

import pytest
from support.scripts import run

pytestmark = pytest.mark.processes

NEVER_COMES = """
import os, sys, time
from builtin_plugins.ddp.strategy import DDPStrategy
from support.scripts import note
from support.tiny import Tiny, loader, trainer

child, how = "RANK" in os.environ, sys.argv[1]
tested = trainer(DDPStrategy(start_timeout=5) if how == "sleeps" else "ddp")
note("child" if child else "parent")
if how == "sleeps" and child:
    time.sleep(100)
if how != "skips" or not child:
    tested.fit(Tiny(), loader())
if how == "goes on" and child:
    tested.validate(Tiny(), loader())
"""


def test_rank_that_skips_fit(tmp_path):
    """A rank that ends its program without coming to fit is named at once, with a hint where to look."""
    ended = run(tmp_path, NEVER_COMES, "skips")
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.soon_after("child"), ended
    assert "with exit status 0 before it came to this run of rank 0\n" in ended.err.replace("[rank0]: ", ""), ended
    assert "look for one inside `if rank == 0`" in ended.err, ended


def test_rank_that_never_comes(tmp_path):
    """A rank that hangs before fit ends the wait after start_timeout, with who did not come and where."""
    ended = run(tmp_path, NEVER_COMES, "sleeps")
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.soon_after("parent", besides=5), ended
    assert "WaitTimeout: rank 0 waited 5 s at 'start of a run with ddp' for rank 1 of 2" in ended.err, ended


def test_rank_that_goes_on_alone(tmp_path):
    """A rank that waits for rank 0, which has come to its end, says so and makes the program end badly."""
    ended = run(tmp_path, NEVER_COMES, "goes on")
    assert ended.status == 1, ended
    assert not ended.left, ended
    fact = "rank 1 is at 'start of a run with ddp', but rank 0 has come to the end of the program"
    assert f"WaitTimeout: {fact}" in ended.err, ended
    assert "rank 1 of 2 failed after the run: process" in ended.err, ended


PACKAGE = """
import json, os, sys
import torch.distributed as dist
if "early" in sys.argv:
    os.chdir("/")
from core import Callback
from support.scripts import note
from support.tiny import Tiny, loader, trainer

os.chdir("/")

class Tell(Callback):
    def on_fit_start(self, trainer, module):
        note(f"rank{trainer.global_rank}", json.dumps([sys.argv[1:], sys.flags.optimize, __spec__ and __spec__.name]))

trainer("ddp", callbacks=[Tell()]).fit(Tiny(), loader())
"""


@pytest.mark.parametrize(
    ("command", "when"),
    [(["-O", "-m", "pkg.train"], "early"), (["-O", "pkg/train.py"], "late")],
    ids=["module", "relative path"],
)
def test_program_that_changes_its_folder(tmp_path, command, when):
    """The other ranks run the same module or script, from the same folder, with the same arguments and options."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "train.py").write_text(PACKAGE)
    arguments = ["--x", "a b", "", when]
    ended = run(tmp_path, "", *arguments, command=[sys.executable, *command])
    assert ended.status == 0, ended
    module = "pkg.train" if "-m" in command else None
    assert [json.loads(ended.note(f"rank{rank}")) for rank in (0, 1)] == [[arguments, 1, module]] * 2


INTERACTIVE = """
from core import Trainer
for strategy in ("ddp", "ddp_spawn", "ddp_sharded"):
    try:
        Trainer(accelerator="cpu", strategy=strategy, devices=2)
    except ValueError as error:
        print(strategy, type(error).__name__, error)

"""


@pytest.mark.parametrize(
    ("command", "stdin"),
    [
        ([sys.executable, "-c", INTERACTIVE], ""),
        ([sys.executable], INTERACTIVE),
        ([sys.executable, "-i"], INTERACTIVE),
        ([sys.executable, "-c", "import code; code.interact()"], INTERACTIVE),
    ],
    ids=["-c", "stdin", "prompt", "console"],
)
def test_session_without_a_script(tmp_path, command, stdin):
    """Where there is no script to run again, the strategies that need one are refused when the Trainer is made."""
    ended = run(tmp_path, "", command=command, stdin=stdin)
    assert ended.status == 0, ended
    refusals = ended.out.split("\nddp")
    assert len(refusals) == 3, ended
    for refusal in refusals:
        assert "InvalidCombination" in refusal, ended
        assert "nearest combinations that work here:\n  accelerator='cpu'" in refusal, ended

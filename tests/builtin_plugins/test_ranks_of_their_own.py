"""ddp_fork and ddp_sharded_spawn: ranks are new processes, and what they come to is brought home."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest
import rank_program
import torch
from rank_program import ELSEWHERE, UNEVEN, Noisy
from support.declared import accelerator, registry_of
from support.reference import make_trainer, run_script
from support.scripts import SOON, TESTS, run

from builtin_plugins.ddp import DECLARATION as DDP
from builtin_plugins.ddp_fork import DECLARATION as FORK
from builtin_plugins.fp32 import DECLARATION as FP32
from builtin_plugins.sharded_spawn import DECLARATION as SPAWN
from builtin_plugins.single_device import DECLARATION as SINGLE
from core.errors import InvalidArgument, InvalidCombination
from core.request import Request

PATH = {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return a function that gives what came home from a strategy's ranks; its processes run once for all tests."""
    results: dict[str, dict[str, Any]] = {}

    def get(strategy: str) -> dict[str, Any]:
        if strategy not in results:
            output = tmp_path_factory.mktemp(strategy) / "found"
            for action in ("train", "resume"):
                run_script(rank_program.__file__, strategy, output, action)
            results[strategy] = {
                action: json.loads(output.with_name(f"found.{action}.0").read_text())[""]
                for action in ("train", "resume")
            }
        return results[strategy]

    return get


@pytest.mark.processes
@pytest.mark.parametrize("strategy", ELSEWHERE)
def test_equals_the_loop_by_hand(found, strategy):
    """The module of the process that asked has the parameters of one process on the joined batches."""
    distances = found(strategy)["train"]["distances"]
    assert len(distances) == len(ELSEWHERE[strategy])
    for case, distance in distances.items():
        assert distance <= (2e-4 if "16-mixed" in case else 1e-6), case


@pytest.mark.processes
@pytest.mark.parametrize("strategy", ELSEWHERE)
def test_resumed_ranks_have_the_same_losses(found, strategy):
    """Ranks that go on from inside an epoch have the losses and metrics of the unbroken run, which come home."""
    whole, resumed = found(strategy)["train"], found(strategy)["resume"]
    assert len(whole["losses"]) == 15
    assert resumed["losses"] == whole["losses"][8:]
    assert resumed["metrics"] == whole["metrics"]
    assert resumed["weight"] == whole["weight"]
    assert whole["metrics"]["seen"] == UNEVEN


@pytest.mark.processes
def test_forks_run_without_a_script(tmp_path):
    """From a program given with -c, auto takes forks: classes of that program train on two ranks, fit after fit."""
    program = """
from support.tiny import Tiny, loader, trainer
class Local(Tiny):
    def on_fit_end(self):
        self.log_here = len(self.trainer.callbacks)
module, runs = Local(), []
before = module.layer.weight.detach().clone()
for _ in range(2):
    made = trainer("auto", log_every_n_steps=1)
    made.fit(module, loader(), loader())
    val_loss = float(made.callback_metrics["val_loss"])
    runs.append((made.plan.strategy.name, made.plan.launch.how, made.global_step, val_loss))
assert not module.layer.weight.equal(before)
assert runs[0][:3] == runs[1][:3] == ("ddp_fork", "fork", 5), runs
assert runs[1][3] < runs[0][3]
print("all is well")
"""
    ended = run(tmp_path, "", command=[sys.executable, "-c", program], env=PATH)
    assert ended.status == 0, ended
    assert "all is well" in ended.out, ended
    assert not ended.left, ended


FAILING = """
import sys, torch.distributed as dist
from support.scripts import note
from support.tiny import Tiny, loader, trainer

class Failing(Tiny):
    def training_step(self, batch, batch_idx):
        if batch_idx == 2 and dist.get_rank() == 1:
            note("failing")
            raise ValueError("on purpose")
        return super().training_step(batch, batch_idx)

if __name__ == "__main__":
    trainer(sys.argv[1]).fit(Failing(), loader())
"""


@pytest.mark.processes
@pytest.mark.parametrize("strategy", [*ELSEWHERE, "zero", "fsdp"])
def test_rank_that_raises_ends_the_run(tmp_path, strategy):
    """A rank that raises ends all soon and badly, with its traceback, also where others wait for its parts."""
    ended = run(tmp_path, FAILING, strategy, env=PATH)
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.seconds_after("failing") < SOON, ended
    assert "RankFailed: rank 1 of 2 failed: ValueError: on purpose" in ended.err, ended
    assert ended.first_traceback == ["ValueError: on purpose", "raised on rank 1 of 2"], ended


def test_process_with_an_open_gpu_is_not_forked(monkeypatch):
    """A process that has opened a GPU is refused before it is forked."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    trainer = make_trainer(strategy="ddp_notebook", devices=2, max_epochs=1)
    with pytest.raises(InvalidArgument, match="has opened a GPU"):
        trainer.fit(Noisy(), [[torch.randn(4, 6), torch.randn(4, 2)]])


def resolved(session: str, provides: tuple[str, ...], strategy: str = "auto", devices: int = 2) -> str:
    """Return the strategy that is taken for two devices of an accelerator with these tokens."""
    registry = registry_of(accelerator("odd", provides=("device.cpu", *provides)), FP32, SINGLE, DDP, FORK, SPAWN)
    request = Request.build("odd", "32-true", strategy, devices=devices)
    return registry.resolve(Request(**{**vars(request), "session": session})).strategy.name


def test_auto_takes_forks_only_where_there_is_no_script():
    """One device needs no processes, a script is run again, and a prompt forks."""
    provides = ("collective.gloo", "fork")
    assert resolved("session.script", provides) == "ddp"
    assert resolved("session.interactive", provides) == "ddp_fork"
    assert resolved("session.interactive", provides, devices=1) == "single_device"


@pytest.mark.parametrize(
    ("strategy", "session", "provides", "token"),
    [
        ("ddp_fork", "session.interactive", ("collective.gloo",), "fork"),
        ("ddp_fork", "session.interactive", ("fork",), "collective.nccl | collective.gloo"),
        ("ddp_sharded_spawn", "session.interactive", ("collective.gloo",), "session.script"),
        ("ddp_sharded_spawn", "session.script", (), "collective.nccl | collective.gloo"),
    ],
)
def test_unmet_need_is_refused(strategy, session, provides, token):
    """What a strategy needs of the accelerator or the session is asked for by name."""
    with pytest.raises(InvalidCombination) as refused:
        resolved(session, provides, strategy)
    assert [violation.token for violation in refused.value.violations] == [token]


@pytest.mark.parametrize("strategy", ELSEWHERE)
def test_started_by_a_launcher_is_refused(monkeypatch, strategy):
    """Under torchrun, which has started the ranks already, new processes are refused."""
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_PORT": 1, "MASTER_ADDR": "host"}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(InvalidCombination, match="started the processes already"):
        make_trainer(strategy=strategy, devices=2)

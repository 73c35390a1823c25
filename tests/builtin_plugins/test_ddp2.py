"""ddp2: one process per node, replicas inside it, two nodes on the loopback device."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import ddp2_program
import pytest
import torch
from support.declared import accelerator, registry_of
from support.reference import TESTS, Case, Net, by_hand, furthest, make_trainer
from torch import nn
from torch.utils.data import DataLoader

from builtin_plugins.ddp2 import DECLARATION as DDP2
from builtin_plugins.fp32 import DECLARATION as FP32
from core import Module
from core.errors import InvalidCombination
from core.request import Request


def on_two_nodes(*arguments: object, timeout: float = 100) -> list[subprocess.CompletedProcess[str]]:
    """Start one process for each of two nodes, with what torchrun would tell it, and wait for both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for node in range(2):
        told = {"RANK": node, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": node}
        told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": "lo"}
        env = {**os.environ, **{name: str(value) for name, value in told.items()}}
        env["PYTHONPATH"] = os.pathsep.join([str(TESTS.parent), str(TESTS)])
        command = [sys.executable, ddp2_program.__file__, *map(str, arguments)]
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        said = [process.communicate(timeout=timeout) for process in started]
    finally:
        for process in started:
            process.kill()
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *texts)
        for process, texts in zip(started, said, strict=True)
    ]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    """What each node found: first training, then in new processes going on from a checkpoint."""
    folder: Path = tmp_path_factory.mktemp("ddp2")
    results: dict[str, Any] = {"folder": folder}
    for action in ("train", "resume"):
        for node, ended in enumerate(on_two_nodes(action, folder)):
            assert ended.returncode == 0, f"node {node}\n{ended.stdout}\n{ended.stderr}"
        results[action] = [json.loads((folder / f"{action}.{node}").read_text()) for node in range(2)]
    return results


@pytest.mark.processes
def test_equals_the_loop_by_hand(found):
    """Two nodes of two replicas each train to the parameters of one process on the joined batches."""
    for node in found["train"]:
        assert len(node["distances"]) == len(ddp2_program.CASES)
        for case, distance in node["distances"].items():
            assert distance <= 1e-6, case


@pytest.mark.processes
def test_data_is_prepared_on_each_node_or_once(found):
    """prepare_data runs in one process of each node, or of all nodes where prepare_data_per_node is False."""
    assert [node["prepared"] for node in found["train"]] == [[1, 1], [1, 0]]


@pytest.mark.processes
def test_each_node_reads_its_share(found):
    """A node reads half of the samples, and each of its replicas a quarter; all samples are evaluated once."""
    for node in found["train"]:
        assert set(node["chunks"]) == {2}
        assert node["metrics"]["seen"] == ddp2_program.UNEVEN


@pytest.mark.processes
def test_resumed_nodes_have_the_same_losses(found):
    """Nodes that go on from inside an epoch have the losses and metrics of the unbroken run."""
    for whole, resumed in zip(found["train"], found["resume"], strict=True):
        assert len(whole["losses"]) == 15
        assert resumed["losses"] == whole["losses"][8:]
        assert resumed["metrics"] == whole["metrics"]


@pytest.mark.processes
def test_checkpoint_is_read_by_one_process(found):
    """One device goes on from the checkpoint of two nodes to the parameters of one process."""
    module, trainer = Net("two"), make_trainer(max_epochs=2)
    loader = DataLoader(ddp2_program.dataset(10), batch_size=ddp2_program.GLOBAL_BATCH)
    trainer.fit(module, loader, ckpt_path=str(found["folder"] / "epoch.ckpt"))
    assert furthest(dict(module.state_dict()), by_hand(Case("two"))) <= 1e-6


@pytest.mark.processes
def test_replica_that_raises_ends_both_nodes(tmp_path):
    """A replica that raises on one node ends the processes of both, the other naming it."""
    first, second = on_two_nodes("fail", tmp_path, timeout=60)
    assert first.returncode == second.returncode == 1
    assert "ValueError: on purpose" in second.stderr
    assert "raised in replica 1 of 2" in second.stderr
    assert "rank 1 of 2 failed: ValueError: on purpose" in first.stderr


def test_one_node_needs_no_launcher():
    """On one node it trains as dp does, in the process that asked."""
    module, trainer = Net("two"), make_trainer(strategy="ddp2", devices=2, max_epochs=2)
    assert trainer.plan.world_size == 1
    trainer.fit(module, DataLoader(ddp2_program.dataset(10), batch_size=ddp2_program.GLOBAL_BATCH))
    trainer.end_run()
    assert furthest(dict(module.state_dict()), by_hand(Case("two"))) <= 1e-6


class Manual(Module):
    automatic_optimization = False

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def training_step(self, batch, batch_idx):
        return None

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters())


def test_manual_optimization_is_refused():
    """A module that runs backward by itself would run it on replicas, and is refused."""
    with pytest.raises(InvalidCombination, match="needs manual_optimization"):
        make_trainer(strategy="ddp2", devices=2, max_epochs=1).fit(Manual(), [torch.ones(2, 2)])


@pytest.mark.parametrize(
    ("provides", "asked", "token"),
    [
        (("collective.gloo",), {}, "replicas"),
        (("replicas",), {}, "collective.nccl | collective.gloo"),
        (("replicas", "collective.gloo"), {"num_nodes": 2}, "launched.external"),
    ],
)
def test_unmet_need_is_refused(provides, asked, token):
    """Replicas, a process group, and for several nodes a launcher, are asked for by name."""
    registry = registry_of(accelerator("odd", provides=("device.cpu", *provides)), FP32, DDP2)
    with pytest.raises(InvalidCombination) as refused:
        registry.resolve(Request.build("odd", "32-true", "ddp2", devices=2, **asked))
    assert [violation.token for violation in refused.value.violations] == [token]


def test_sync_batchnorm_is_refused():
    """Statistics over all replicas of all nodes are refused rather than left out."""
    with pytest.raises(InvalidCombination, match="sync_batchnorm"):
        make_trainer(strategy="ddp2", devices=2, sync_batchnorm=True)

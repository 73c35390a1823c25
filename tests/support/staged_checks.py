"""What every strategy that cuts a model has to show, held against what its jobs have left in a folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from support import staged
from support.reference import Case, dataset, furthest, make_trainer, run_script
from support.scripts import SOON, TESTS, run
from support.staged import Parted, Run, Staged, by_hand
from torch.utils.data import DataLoader

TOLERANCE = {"64-true": 1e-12, "bf16-mixed": 2e-2}
"""Largest difference to one process; 1e-6 for all others."""
LIMIT = 220.0
"""Seconds that a job may take, on a machine that does other things too."""
BREAK = "from support.staged import main\nmain()\n"


def run_job(strategy: str, devices: int, folder: Path, what: str) -> None:
    """Run a job to its good end."""
    run_script(staged.__file__, strategy, devices, folder, what, timeout=LIMIT)


def run_on_nodes(strategy: str, devices: int, nodes: int, folder: Path, what: str) -> None:
    """Run a job as several nodes, each with a torchrun of its own, to its good end."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    lo = dict.fromkeys(("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), "lo")
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    launcher = ["-m", "torch.distributed.run", "--nnodes", nodes, "--nproc-per-node", devices // nodes, *meeting]
    command = [sys.executable, *launcher, staged.__file__, strategy, devices, folder, what]
    agents = [
        subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, **lo, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(nodes)
    ]
    try:
        outputs = [agent.communicate(timeout=LIMIT)[0] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert [agent.returncode for agent in agents] == [0] * nodes, "\n".join(outputs)


def told(folder: Path, name: str, devices: int) -> list[Any]:
    """Return what each rank wrote down."""
    return [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in range(devices)]


def check_weights(folder: Path, name: str, run: Run, ranks: int = 1) -> None:
    """The ranks that hold the model have trained it to the parameters of one process."""
    expected = by_hand(run)
    for rank in range(ranks):
        found = torch.load(folder / f"{name}.{rank}.pt")
        assert furthest(found, expected) < TOLERANCE.get(run.case.precision, 1e-6), (name, rank)


def check_metrics(folder: Path, name: str, run: Run, devices: int, replicas: int) -> None:
    """All ranks, whatever they do, end with the same counts and metrics."""
    ranks = told(folder, name, devices)
    steps = run.case.epochs * -(-run.case.batches // run.case.accumulate)
    assert {rank["step"] for rank in ranks} == {steps}
    assert {len(rank["losses"]) for rank in ranks} == {run.case.epochs * run.case.batches}
    assert all(rank["epochs"] == [run.case.epochs] for rank in ranks)
    assert len({rank["metrics"]["val_loss"] for rank in ranks}) == 1
    assert {rank["metrics"]["samples"] for rank in ranks} == {8 * run.case.batches}
    if replicas == 1:
        assert all(rank == ranks[0] for rank in ranks)


def check_single_device_goes_on(folder: Path, name: str, run: Run) -> None:
    """A single device reads the checkpoint and trains on as if it had trained all along."""
    case = replace(run.case, epochs=run.case.epochs + 1)
    module = Parted(case.optimizers) if run.model == "parts" else Staged(case.optimizers)
    trainer = make_trainer(max_epochs=case.epochs, accumulate_grad_batches=case.accumulate, gradient_clip_val=case.clip)
    trainer.fit(module, DataLoader(dataset(case.batches), 8), ckpt_path=folder / f"{name}.ckpt")
    trainer.end_run()
    assert furthest(dict(module.state_dict()), by_hand(run._replace(case=case))) < 1e-6


def check_evaluation(folder: Path, module: Staged, devices: int) -> None:
    """Validation and prediction give what one process gives, on every rank."""
    data = DataLoader(dataset(3), 8)
    trainer = make_trainer()
    expected = trainer.validate(module, data, verbose=False)[0], torch.cat(trainer.predict(module, data))
    trainer.end_run()
    for rank in range(devices):
        seen = torch.load(folder / f"seen.{rank}.pt")
        assert torch.allclose(torch.cat(seen["predictions"]), expected[1], atol=1e-6), rank
        assert abs(seen["metrics"][0]["val_loss"] - expected[0]["val_loss"]) < 1e-6
        assert seen["metrics"][0]["samples"] == expected[0]["samples"] == 24


def write_single_checkpoint(folder: Path, module: Staged) -> None:
    """Train an epoch on a single device and save."""
    trainer = make_trainer(max_epochs=1)
    trainer.fit(module, DataLoader(dataset(6), 8))
    trainer.save_checkpoint(folder / "single.ckpt")
    trainer.end_run()


def check_resumed(folder: Path, devices: int, model: str = "") -> None:
    """A new program goes on with the losses of an unbroken run, and from what a single device has written."""
    for whole, rest in zip(told(folder, "unbroken", devices), told(folder, "resumed", devices), strict=True):
        assert len(whole) == 12
        assert torch.allclose(torch.tensor(whole[staged.SAVE_AT :]), torch.tensor(rest), atol=1e-6)
    expected = by_hand(Run(Case("adamw", batches=6), {}, model))
    assert furthest(torch.load(folder / "taken.pt"), expected) < 1e-6


def check_failure(folder: Path, strategy: str, devices: int, bad: int) -> None:
    """A layer that raises on rank ``bad`` ends the run soon, its traceback first, and leaves no process."""
    ended = run(folder, BREAK, strategy, devices, folder, "break")
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.seconds_after("failing") < SOON, ended
    assert ended.first_traceback == ["ValueError: on purpose", f"raised on rank {bad} of {devices}"], ended
    assert f"RankFailed: rank {bad} of {devices} failed: ValueError: on purpose" in ended.err, ended


def check_killed(folder: Path, strategy: str, devices: int, bad: int) -> None:
    """A rank that is killed in the middle of a step ends the run soon, is named, and leaves no process."""
    ended = run(folder, BREAK, strategy, devices, folder, "break", env={"BROKEN": "killed"})
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.seconds_after("failing") < SOON, ended
    number = ended.note("failing").strip()
    assert f"rank {bad} of {devices} failed: process {number} was killed by SIGKILL" in ended.err, ended


def check_lingering(folder: Path, strategy: str, devices: int) -> None:
    """A rank that does not come to the program's end is waited for a little, named, and ended."""
    ended = run(folder, BREAK, strategy, devices, folder, "linger")
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert ended.soon_after("lingering", besides=4), ended
    assert "worker0 leaves the RPC world without worker1, which did not come to the end" in ended.err, ended
    assert "children were still running 2 s after rank 0 had finished; they were ended" in ended.err, ended


def check_absent(folder: Path, strategy: str, devices: int) -> None:
    """A peer that never comes to the start ends the run after start_timeout, by its name."""
    ended = run(folder, BREAK, strategy, devices, folder, "absent")
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert f"rank 0 waited 8 s at 'start of a run with {strategy}' for rank 1" in ended.err, ended

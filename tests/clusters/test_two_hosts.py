"""torchrun over two hosts: two network namespaces with a cable between them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

JOB = Path(__file__).with_name("train_job.py")
pytestmark = pytest.mark.processes


def torchrun(host, rank, master, folder, *options):
    """Start torchrun's part on one host."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1"),
        *(f"--master-addr={master.address}", "--master-port=29511", JOB, folder, *options),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return host.popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def run(hosts, folder, *options):
    """Start both parts."""
    return [torchrun(host, rank, hosts[0], folder, *options) for rank, host in enumerate(hosts)]


def end(process):
    """End what a test leaves, by its own number."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("strategy", ["ddp", "ddp_sharded"])
def test_two_hosts_train_to_the_reference(hosts, tmp_path, reference, end_of, strategy):
    """Two hosts under torchrun --nnodes 2 end with the parameters of one process."""
    processes = run(hosts, tmp_path, f"--strategy={strategy}")
    try:
        outputs = [process.communicate(timeout=110)[0] for process in processes]
    finally:
        for process in processes:
            end(process)
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    for ours, theirs in zip(end_of(tmp_path)["parameters"], reference["parameters"], strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=0, atol=1e-6)


def test_a_cut_cable_ends_both_sides(hosts, tmp_path):
    """When the link goes down in mid-training, both sides end non-zero within the timeout and say that they waited."""
    processes = run(hosts, tmp_path, "--epochs=1000", "--wait=0.05", "--timeout=10")
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "losses-1.txt").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        hosts[1].cut()
        outputs = [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            end(process)
    assert all(process.returncode for process in processes)
    assert any("the network is gone" in output for output in outputs), "\n".join(outputs)

"""A real mpirun of Open MPI starts the processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

JOB = Path(__file__).with_name("train_job.py")
pytestmark = pytest.mark.processes


def mpirun(folder, *options, processes=2):
    """Run the job under mpirun on this machine."""
    if shutil.which("mpirun") is None:
        pytest.skip("Open MPI is not installed (apt-get install openmpi-bin)")
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(processes), sys.executable, JOB, folder]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": "29517"}
    return subprocess.run(
        [*command, "--num-nodes=1", *options], env=environment, capture_output=True, text=True, timeout=110
    )


def test_trains_to_the_reference(tmp_path, reference, end_of):
    """mpirun -n 2, without a special script, gives the parameters of one process; the plan names mpirun."""
    done = mpirun(tmp_path, "--devices=2")
    assert done.returncode == 0, done.stderr
    end = end_of(tmp_path)
    for ours, theirs in zip(end["parameters"], reference["parameters"], strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=0, atol=1e-6)
    assert "started by mpirun (OMPI_COMM_WORLD_SIZE=2)" in end["plan"]


def test_a_wrong_number_of_processes_is_refused(tmp_path):
    """Two processes for devices=3 end at construction, naming the variable and both numbers."""
    done = mpirun(tmp_path, "--devices=3")
    assert done.returncode != 0
    assert "OMPI_COMM_WORLD_SIZE=2" in done.stderr
    assert "makes 3 processes" in done.stderr


def test_a_rank_that_raises_ends_the_job(tmp_path):
    """When rank 1 raises, the job ends, non-zero, and says which rank."""
    done = mpirun(tmp_path, "--devices=2", "--raises=1")
    assert done.returncode != 0
    assert "this rank has had enough" in done.stderr

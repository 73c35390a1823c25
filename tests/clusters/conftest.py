"""A SLURM cluster for the tests of this folder, and the training that they compare with."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import available, two_hosts

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("train_job.py")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """The environment variables of a running cluster of two nodes; ended by its own process numbers."""
    if shutil.which("srun") is None:
        pytest.skip("SLURM is not installed (apt-get install slurm-wlm munge)")
    folder = tmp_path_factory.mktemp("slurm")
    script = [sys.executable, ROOT / "scripts" / "slurm_cluster.py"]
    started = subprocess.run([*script, "start", "--folder", folder], capture_output=True, text=True, timeout=120)
    assert started.returncode == 0, started.stderr
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "OMP_NUM_THREADS": "1"}
    yield {name: value for name, value in environment.items() if not name.startswith("PYTEST")}
    subprocess.run([*script, "stop", "--folder", folder], timeout=60, check=True)


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """The parameters after the same training in one process on the whole batches."""
    folder = tmp_path_factory.mktemp("reference")
    command = [sys.executable, JOB, folder, "--strategy=single_device", "--num-nodes=1", "--batch-size=8"]
    # two ranks with batches of 4 see, in turn, what one process with batches of 8 sees together
    subprocess.run(command, check=True, timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads((folder / "end.json").read_text())


@pytest.fixture
def end_of():
    """Read what rank 0 wrote at the end of a job."""
    return lambda folder: json.loads(Path(folder, "end.json").read_text())


@pytest.fixture
def hosts():
    """Two hosts that can reach each other."""
    reason = available()
    if reason:
        pytest.skip(reason)
    with two_hosts() as pair:
        yield pair

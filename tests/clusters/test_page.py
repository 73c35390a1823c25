"""The page on clusters: its commands, run as they stand there, on a real SLURM and on two hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "clusters.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
pytestmark = pytest.mark.processes


def commands(start: str) -> list[str]:
    """Return the commands of the page that begin so."""
    found = [line for line in COMMANDS if line.startswith(start)]
    assert found, COMMANDS
    return found


def summary(folder: Path) -> dict:
    """Return what the example wrote about its run."""
    return json.loads((folder / "summary.json").read_text())


def with_our_python(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment with the commands of this interpreter first, as in an activated environment."""
    return {**environment, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"}


def test_plan_is_shown(tmp_path):
    """The page's first lines make a Trainer and print who starts the processes."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "train.py").write_text(code)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "start" in done.stdout, done.stderr


def test_batch_script(slurm, tmp_path):
    """sbatch with the example's script trains on two nodes; its options reach the training."""
    (command,) = commands("sbatch")
    words = command.replace("sbatch", f"sbatch --wait --output={tmp_path}/job.txt").split()
    done = subprocess.run(
        [*words, "--out", str(tmp_path / "digits")],
        cwd=ROOT, env=with_our_python(slurm), capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    said = (tmp_path / "job.txt").read_text()
    assert done.returncode == 0, done.stderr + said
    ended = summary(tmp_path / "digits")
    assert (ended["world_size"], ended["epochs"]) == (2, 5)
    assert re.search(r"started by SLURM job \d+ \(SLURM_NTASKS=2, SLURM_NNODES=2\)", said)


@contextmanager
def named(host, name: str, address: str) -> Iterator[None]:
    """Let a host know another by its name."""
    folder = Path("/etc/netns", host.name)  # ip netns exec lays this folder over /etc
    folder.mkdir(parents=True)
    try:
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n")
        yield
    finally:
        (folder / "hosts").unlink()
        folder.rmdir()


def test_torchrun_on_two_hosts(hosts, tmp_path):
    """The two commands, one on each host, train together to a good accuracy."""
    started = []
    with named(hosts[0], "first-node", hosts[0].address), named(hosts[1], "first-node", hosts[0].address):
        try:
            for host, command in zip(hosts, commands("torchrun"), strict=True):
                settings = {**with_our_python(dict(os.environ)), "OMP_NUM_THREADS": "1"}
                words = [*command.split(), "--out", tmp_path / "digits"]
                started.append(
                    host.popen(
                        words, cwd=ROOT, env=settings, text=True, start_new_session=True,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    )
                )  # fmt: skip
            outputs = [process.communicate(timeout=170)[0] for process in started]
        finally:
            for process in started:
                if process.poll() is None:
                    os.killpg(process.pid, 9)
                    process.wait()
    assert [process.returncode for process in started] == [0, 0], "\n".join(outputs)
    ended = summary(tmp_path / "digits")
    assert ended["world_size"] == 2
    assert ended["val_acc"] > 0.9


def test_the_tpu_host_is_told_from_its_stand_in():
    """The command for a TPU host, which the tests of XLA run on the processors, is one command without a launcher."""
    (command,) = commands("python")
    assert "--strategy xla_spmd" in command

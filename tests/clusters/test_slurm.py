"""Training on a real SLURM cluster: two nodes on the loopback address."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

JOB = Path(__file__).with_name("train_job.py")
pytestmark = pytest.mark.processes


def srun(slurm, folder, *options, tasks=1, inside=()):
    """Run the job with one srun over two nodes, which may be inside an allocation."""
    command = [*inside, "srun", "-N2", f"--ntasks-per-node={tasks}", sys.executable, JOB, folder, *options]
    return subprocess.run(command, env=slurm, capture_output=True, text=True, timeout=110)


def assert_same(end, reference):
    for ours, theirs in zip(end["parameters"], reference["parameters"], strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [("ddp", ()), ("ddp2", ("--devices=2",)), ("ddp_sharded", ())],
)
def test_two_nodes_train_to_the_reference(slurm, tmp_path, reference, end_of, strategy, options):
    """srun on two nodes, without a special script, gives the parameters of one process; the plan names the job."""
    done = srun(slurm, tmp_path, f"--strategy={strategy}", *options)
    assert done.returncode == 0, done.stderr
    end = end_of(tmp_path)
    assert_same(end, reference)
    assert re.search(r"started by SLURM job \d+ \(SLURM_NTASKS=2, SLURM_NNODES=2\)", end["plan"])


def test_srun_in_an_interactive_allocation(slurm, tmp_path, reference, end_of):
    """srun in the shell that salloc gives starts tasks that train together, although the job is called interactive."""
    done = srun(slurm, tmp_path, inside=("salloc", "-N2"))
    assert done.returncode == 0, done.stderr
    assert_same(end_of(tmp_path), reference)


@pytest.mark.parametrize(
    ("options", "tasks", "numbers"),
    [
        (["--devices=2"], 1, ("SLURM_NTASKS=2", "devices=2 x num_nodes=2 makes 4 processes")),
        (
            ["--strategy=ddp2", "--devices=2"],
            2,
            ("SLURM_NTASKS=4", "num_nodes=2 with one process on each, as ddp2 has it, makes 2 processes"),
        ),
    ],
    ids=["too few", "too many"],
)
def test_a_wrong_number_of_tasks_is_refused_with_both_numbers(slurm, tmp_path, options, tasks, numbers):
    """Another number of tasks than the strategy has processes ends at construction, with the variable and both."""
    done = srun(slurm, tmp_path, *options, tasks=tasks)
    assert done.returncode != 0
    assert all(number in done.stderr for number in numbers), done.stderr


def test_a_shell_in_an_allocation_is_told_apart(slurm, tmp_path):
    """In the batch script itself no task was started: the plan says so, and one process trains alone."""
    script = tmp_path / "job.sh"
    code = "from core import Trainer; print(Trainer(accelerator='cpu', strategy='ddp', devices=2).plan)"
    (tmp_path / "plan.py").write_text(code)
    script.write_text(f"#!/bin/sh\n{sys.executable} {tmp_path}/plan.py\n")
    out = tmp_path / "out.txt"
    subprocess.run(
        ["sbatch", "--wait", "-N2", f"--output={out}", script], env=slurm, check=True, timeout=110, capture_output=True
    )
    assert re.search(r"in the batch script of SLURM job \d+; srun starts one process per task", out.read_text())


@pytest.mark.parametrize(("how", "said"), [("--raises=1", "this rank has had enough"), ("--dies=1", "Killed")])
def test_a_failing_rank_ends_the_job(slurm, tmp_path, how, said):
    """When the rank on the second node raises or is killed, the job ends at once, non-zero, and says which."""
    done = srun(slurm, tmp_path, how)
    assert done.returncode != 0
    assert said in done.stderr
    assert re.search(r"rank 1 of 2|task 1: Killed", done.stderr)


def losses(folder, rank):
    """Return the losses of a rank by epoch and batch; a resumed run adds to the file of the first."""
    lines = Path(folder, f"losses-{rank}.txt").read_text().splitlines()
    return [tuple(line.split()) for line in lines]


def test_a_job_that_is_warned_is_queued_again_and_goes_on(slurm, tmp_path):
    """SIGUSR1 in mid-training: saved between steps, requeued once, resumed to the losses of an unbroken run."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert srun(slurm, whole, "--epochs=4").returncode == 0
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nsrun {sys.executable} {JOB} {broken} --epochs=4 --wait=0.3\n")
    submit = ["sbatch", "--parsable", "--requeue", "--open-mode=append", "-N2", "--ntasks-per-node=1"]
    out = tmp_path / "out.txt"
    number = subprocess.run(
        [*submit, f"--output={out}", script], env=slurm, check=True, timeout=60, capture_output=True, text=True
    ).stdout.strip()
    _wait(lambda: len(_lines(broken)) >= 4, 60, out)
    subprocess.run(["scancel", "--signal=USR1", number], env=slurm, check=True, timeout=30)
    _wait(lambda: (broken / "end.json").exists(), 110, out)
    for rank in (0, 1):
        assert losses(broken, rank) == losses(whole, rank)
    assert out.read_text().count("queued the job again") == 1
    assert [path.name for path in broken.glob("*.ckpt")] == [f"requeued_job{number}_fit1_1.ckpt"]
    assert out.read_text().count("the job was queued again: going on from") == 1


def _lines(folder):
    path = Path(folder, "losses-0.txt")
    return path.read_text().splitlines() if path.exists() else []


def _wait(condition, seconds, out):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, out.read_text() if out.exists() else "the job never started"
        time.sleep(0.2)

"""A job that its scheduler warns saves, is queued again, and goes on from its own file and from no other."""

import itertools
import os
import signal

import pytest
import torch
from support.tiny import Tiny, loader, trainer

from core.errors import InvalidArgument
from core.session import LaunchEnvironment


@pytest.fixture
def job(monkeypatch, tmp_path):
    """Return a function that makes this process the only task of a SLURM job that begins now."""
    asked = tmp_path / "asked"
    scheduler = tmp_path / "bin" / "scontrol"
    scheduler.parent.mkdir()
    scheduler.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    scheduler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scheduler.parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("PROCID", "LOCALID", "NODEID", "STEP_ID"):
        monkeypatch.setenv(f"SLURM_{name}", "0")
    for name in ("NTASKS", "NNODES"):
        monkeypatch.setenv(f"SLURM_{name}", "1")

    def begin(number):
        monkeypatch.setenv("SLURM_JOB_ID", str(number))
        monkeypatch.setattr("core.trainer.FITS", itertools.count(1))

    begin.asked = asked
    return begin


class Warned(Tiny):
    """Is warned in one of its steps, and notes which batches it saw."""

    def __init__(self, at=None):
        super().__init__()
        self.at, self.seen = at, []

    def training_step(self, batch, batch_idx):
        self.seen.append((self.current_epoch, batch_idx))
        if self.global_step == self.at:
            os.kill(os.getpid(), signal.SIGUSR1)
        return super().training_step(batch, batch_idx)


def fit(module, folder, **settings):
    made = trainer("single_device", 1, max_epochs=2, default_root_dir=folder)
    made.fit(module, loader(), **settings)
    return made


def names(folder):
    return sorted(path.name for path in folder.glob("*.ckpt"))


def test_the_job_goes_on_and_says_from_what(job, tmp_path, capsys):
    """Warned in its fourth step, the job saves after it, is queued once, and later sees the rest of the batches."""
    whole = Tiny()
    trainer("single_device", 1, max_epochs=2).fit(whole, loader())
    job(7)
    first = Warned(at=3)
    with pytest.raises(SystemExit) as ended:
        fit(first, tmp_path)
    assert ended.value.code == 0
    assert first.seen == [(0, batch) for batch in range(4)]
    assert names(tmp_path) == ["requeued_job7_fit1_1.ckpt"]
    assert job.asked.read_text().splitlines() == ["requeue 7"]
    assert "going on from" not in capsys.readouterr().out

    job(7)
    second = Warned()
    fit(second, tmp_path, ckpt_path=tmp_path / "older.ckpt")
    assert second.seen == [(0, batch) for batch in range(4, 10)] + [(1, batch) for batch in range(10)]
    assert torch.equal(second.layer.weight, whole.layer.weight)
    said = capsys.readouterr().out
    assert f"the job was queued again: going on from {tmp_path / 'requeued_job7_fit1_1.ckpt'}" in said
    assert f"not from ckpt_path='{tmp_path / 'older.ckpt'}'" in said


def test_no_other_job_goes_on_from_its_file(job, tmp_path, capsys):
    """A later job in the same folder, and one whose number merely begins the same, starts from the beginning."""
    job(7)
    with pytest.raises(SystemExit):
        fit(Warned(at=3), tmp_path)
    for number in (8, 77):
        job(number)
        fresh = Warned()
        fit(fresh, tmp_path)
        assert len(fresh.seen) == 20
    assert "going on from" not in capsys.readouterr().out


def test_a_second_fit_does_not_go_on_from_the_first_ones_file(job, tmp_path):
    """A script that fits twice and is warned in its first fit begins the second afresh when it runs again."""
    job(7)
    with pytest.raises(SystemExit):
        fit(Warned(at=3), tmp_path)
    job(7)
    fit(Warned(), tmp_path)
    second = Warned(at=12)
    with pytest.raises(SystemExit):
        fit(second, tmp_path)
    assert second.seen == [(0, batch) for batch in range(10)] + [(1, batch) for batch in range(3)]
    assert names(tmp_path) == ["requeued_job7_fit1_1.ckpt", "requeued_job7_fit2_1.ckpt"]


def test_a_job_warned_twice_goes_on_from_the_newest(job, tmp_path):
    """The checkpoint of the second warning gets the next number, and the third start goes on from it."""
    for at, steps in [(3, 4), (9, 6)]:
        job("7_2+1")
        module = Warned(at=at)
        with pytest.raises(SystemExit):
            fit(module, tmp_path)
        assert len(module.seen) == steps
    assert names(tmp_path) == ["requeued_job7_2-1_fit1_1.ckpt", "requeued_job7_2-1_fit1_2.ckpt"]
    job("7_2+1")
    last = Warned()
    fit(last, tmp_path)
    assert last.seen == [(1, batch) for batch in range(10)]


def test_an_environment_that_requeues_has_to_name_its_job():
    """A command that queues the job again without the job's name is refused where the environment is described."""
    with pytest.raises(InvalidArgument, match="'theirs' says how a job is queued again, but not which job this is"):
        LaunchEnvironment("theirs", "its variables are set", requeue=("again", "7"))

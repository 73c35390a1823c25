"""Four XLA devices in one process: the compiler splits each batch, and the result is that of one device."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch_xla", reason="torch_xla is not installed; scripts/xla_env.sh makes an environment with it")

import torch
import xla_program
from support.reference import Case, by_hand, furthest, run_script

pytestmark = pytest.mark.timeout(600)  # the first test compiles the programs of all
TOLERANCE = 1e-6
ON_FOUR = {"strategy": "xla_spmd", "devices": 4}
CLIPPED = {"batches": 5, "accumulate": 3, "clip": 0.05}
TWO = {"optimizers": "two", "batches": 4, "accumulate": 2, "clip": 0.02, "algorithm": "value", "epochs": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What a process with four devices came to, job by job, and a process that goes on from its checkpoint."""
    folder = tmp_path_factory.mktemp("spmd")
    saved = str(folder / "a.ckpt")
    going_on = {**ON_FOUR, "dropout": 0.3, "case": {"batches": 2}}
    jobs = {
        "clipped": {**ON_FOUR, "case": CLIPPED},
        "two": {**ON_FOUR, "case": TWO},
        "bf16": {**ON_FOUR, "case": {**CLIPPED, "precision": "bf16-mixed"}},
        "uneven": {**ON_FOUR, "case": {"batches": 2}, "batch_size": 10},
        "half": {**going_on, "epochs": 1, "save": saved},
        "unbroken": {**going_on, "epochs": 2},
    }
    resumed = {"resumed": {**going_on, "epochs": 2, "resume": saved}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPU_NUM_DEVICES", "4")
        results = {}
        for number, group in enumerate((jobs, resumed)):
            output = folder / f"results.{number}"
            run_script(xla_program.__file__, output, *map(json.dumps, group.values()), timeout=580)
            results.update(zip(group, torch.load(output), strict=True))
    return results


@pytest.mark.parametrize(("name", "case"), [("clipped", Case(**CLIPPED)), ("two", Case(**TWO))])
def test_parameters(trained, name, case):
    """Four devices give the parameters of the loop by hand on the whole batches, accumulated and clipped."""
    assert furthest(trained[name]["parameters"], by_hand(case)) <= TOLERANCE


def test_batches_are_split(trained):
    """Each batch lies split over the four devices along its first axis."""
    (layout,) = trained["clipped"]["shardings"]
    assert "devices=[4,1]0,1,2,3" in layout


def test_bfloat16(trained):
    """Autocast to bfloat16 works over four devices."""
    expected = by_hand(Case(**CLIPPED, precision="bf16-mixed"))
    assert furthest(trained["bf16"]["parameters"], expected) <= 2e-3


def test_uneven_batch(trained):
    """A batch that four devices cannot share evenly is whole on each: nothing is lost or counted twice."""
    assert not any("devices=" in layout for layout in trained["uneven"]["shardings"])
    assert trained["uneven"]["metrics"]["val_loss"] == pytest.approx(
        float(alone_on_uneven()["val_loss"]), abs=TOLERANCE
    )


def alone_on_uneven():
    """Return the metrics of the same training on one device of the host."""
    from support.reference import dataset, make_trainer
    from torch.utils.data import DataLoader

    class Plain(xla_program.Watched):
        def training_step(self, batch, batch_idx):
            return super(xla_program.Watched, self).training_step(batch, batch_idx)

    loader = DataLoader(dataset(2), batch_size=10)
    trainer = make_trainer(max_epochs=2)
    trainer.fit(Plain("sgd", 0.0), loader, loader)
    return trainer.callback_metrics


def test_resume(trained):
    """Going on from a checkpoint in a new process gives the losses of the unbroken training, dropout included."""
    assert trained["resumed"]["losses"] == pytest.approx(trained["unbroken"]["losses"][2:], abs=TOLERANCE)
    assert furthest(trained["resumed"]["parameters"], trained["unbroken"]["parameters"]) <= TOLERANCE


def test_device_by_index(monkeypatch, tmp_path):
    """devices=[2] trains on the third of four devices alone, to the loop by hand; one without an index is the first."""
    monkeypatch.setenv("CPU_NUM_DEVICES", "4")
    jobs = [{"devices": [2], "case": CLIPPED}, {"devices": 1, "case": CLIPPED}]
    run_script(xla_program.__file__, tmp_path / "results", *map(json.dumps, jobs), timeout=280)
    picked, first = torch.load(tmp_path / "results")
    assert (picked["places"], first["places"]) == (["xla:2"], ["xla:0"])
    for found in (picked, first):
        assert furthest(found["parameters"], by_hand(Case(**CLIPPED))) <= TOLERANCE

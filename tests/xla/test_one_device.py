"""One XLA device: the loop by hand in host memory is what it has to equal."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch_xla", reason="torch_xla is not installed; scripts/xla_env.sh makes an environment with it")

import torch
import torch_xla
import xla_program
from support.reference import Case, Net, by_hand, dataset, furthest, make_trainer, run_script
from torch import nn
from torch.utils.data import DataLoader

pytestmark = pytest.mark.timeout(600)  # programs are compiled
FLOAT32 = 1e-6
TOLERANCE = {"32-true": FLOAT32, "64-true": 1e-12, "bf16-mixed": 2e-3, "bf16-true": 2e-2}
"""The largest difference of a parameter; in bfloat16 after SGD, since Adam enlarges the smallest differences.

It has 8 bits, and compiled operations round at other places.
"""
CASES = [
    Case(),
    Case("adam", batches=4, accumulate=3, clip=0.05, epochs=1),
    Case("two", batches=4, accumulate=4, clip=0.02, algorithm="value"),
    *(Case(batches=3, accumulate=3, clip=0.05, precision=name) for name in ("64-true", "bf16-mixed", "bf16-true")),
]


def on_xla(module, case, strategy="single_device", validate=False):
    """Train ``module`` as ``case`` says and return the Trainer."""
    trainer = make_trainer(
        accelerator="xla",
        strategy=strategy,
        precision=case.precision,
        max_epochs=case.epochs,
        accumulate_grad_batches=case.accumulate,
        gradient_clip_val=case.clip,
        gradient_clip_algorithm=case.algorithm,
    )
    loader = DataLoader(dataset(case.batches), batch_size=8)
    trainer.fit(module, loader, loader if validate else None)
    return trainer


def in_host_memory(module):
    """Return the parameters of ``module`` in host memory."""
    return {name: value.cpu() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parameters(case):
    """Training on one XLA device gives the parameters of the loop by hand, accumulated, clipped and in bfloat16."""
    module = Net(case.optimizers)
    on_xla(module, case)
    assert next(module.parameters()).device.type == "xla"
    assert furthest(in_host_memory(module), by_hand(case)) <= TOLERANCE[case.precision]


def test_launched_process():
    """torch_xla.launch with one process gives the parameters of the loop by hand."""
    case = Case(batches=4, accumulate=2, clip=0.05)
    module = Net(case.optimizers)
    on_xla(module, case, "xla_spawn")
    assert furthest(in_host_memory(module), by_hand(case)) <= FLOAT32


def test_validation_and_prediction():
    """Validation and prediction on the device give what they give in host memory, for the same weights."""
    module = xla_program.Watched("sgd", 0.0)
    loader = DataLoader(dataset(3), batch_size=8)
    expected = {}
    for accelerator in ("cpu", "xla"):
        trainer = make_trainer(accelerator=accelerator)
        metrics = trainer.validate(module, loader, verbose=False)
        predictions = torch.cat([prediction.cpu() for prediction in trainer.predict(module, loader)])
        expected[accelerator] = metrics[0]["val_loss"], predictions
    assert expected["xla"][0] == pytest.approx(expected["cpu"][0], abs=FLOAT32)
    assert torch.allclose(expected["xla"][1], expected["cpu"][1], atol=FLOAT32)


def test_order(monkeypatch):
    """Backward of each micro-batch, then clip, step and mark step once at the end of each window, and no mark else."""
    events = []

    def note(holder, name, event):
        real = getattr(holder, name)

        def noted(*args, **kwargs):
            events.append(event)
            return real(*args, **kwargs)

        monkeypatch.setattr(holder, name, noted)

    note(torch.Tensor, "backward", "backward")
    note(nn.utils, "clip_grad_norm_", "clip")
    note(torch.optim.SGD, "step", "step")
    note(torch_xla, "sync", "mark step")
    on_xla(Net(), Case(accumulate=2, batches=4, epochs=1, clip=0.05))
    assert events == ["backward", "backward", "clip", "step", "mark step"] * 2


def test_evaluation_steps_end(monkeypatch):
    """The program of an evaluation step runs before the next batch comes, so that it does not grow with the loader."""
    marks = []
    real = torch_xla.sync
    monkeypatch.setattr(torch_xla, "sync", lambda *a, **k: (marks.append(torch.is_grad_enabled()), real(*a, **k))[1])
    make_trainer(accelerator="xla").validate(xla_program.Watched("sgd", 0.0), DataLoader(dataset(3), batch_size=8))
    assert marks == [False, False, False]


def test_resume(tmp_path):
    """A training that goes on in a new process loses nothing: its losses, dropout included, are the unbroken one's."""
    checkpoint, (first, second) = tmp_path / "a.ckpt", (tmp_path / "first", tmp_path / "second")
    job = {"dropout": 0.3, "case": {"optimizers": "adam", "batches": 4, "accumulate": 2}}
    broken = [{**job, "epochs": 1, "save": str(checkpoint)}, {**job, "epochs": 2}]
    run_script(xla_program.__file__, first, *map(json.dumps, broken))
    run_script(xla_program.__file__, second, json.dumps({**job, "epochs": 2, "resume": str(checkpoint)}))
    unbroken, (resumed,) = torch.load(first)[1], torch.load(second)
    assert len(resumed["losses"]) == 4
    assert resumed["losses"] == pytest.approx(unbroken["losses"][4:], abs=FLOAT32)
    assert furthest(resumed["parameters"], unbroken["parameters"]) <= FLOAT32
    held = torch.load(checkpoint, weights_only=True)
    moments = [value for state in held["optimizer_states"][0]["state"].values() for value in state.values()]
    assert all(tensor.device.type == "cpu" for tensor in [*held["state_dict"].values(), *moments])

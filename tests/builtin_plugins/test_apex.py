"""The apex precision, with a stand-in for apex: the real one needs a GPU and is built from source."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
from support import fake_apex
from support.fake_dists import write_plugin
from support.reference import Case, Net, by_hand, dataset, furthest, make_trainer
from torch import nn
from torch.utils.data import DataLoader

from core import Callback, availability
from core.errors import InvalidArgument, InvalidCombination, PluginUnavailable
from core.registry import get_registry

BATCH = 8
ROOT = Path(__file__).parents[2]


def forget():
    """Forget what is remembered once per process about installed packages."""
    get_registry.cache_clear()
    for remembered in (availability.installed_version, availability.package_problem, availability.run_probe):
        remembered.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "apex" or "plugins.apex" in name]:
        del sys.modules[name]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder first on the path, with an accelerator in host memory that says it is a CUDA device."""
    monkeypatch.syspath_prepend(tmp_path)
    tokens = ("device.cuda", "autocast.float16", "collective.gloo")
    place = "builtin_plugins.cpu.accelerator:CPUAccelerator"
    write_plugin(tmp_path, "pretended", "accelerator", "pretended", provides=tokens, implementation=place)
    forget()
    yield tmp_path
    forget()


@pytest.fixture
def amp(site):
    """The stand-in for apex.amp."""
    fake_apex.write(site)
    forget()
    return importlib.import_module("apex.amp")


def trainer(**settings):
    """Return a Trainer with the apex precision."""
    return make_trainer(**{"accelerator": "pretended", "precision": "apex", **settings})


def at_level(level, **options):
    """Return an apex precision configured by hand."""
    return importlib.import_module("builtin_plugins.apex.precision").ApexPrecision(level=level, **options)


def batches(count):
    return DataLoader(dataset(count), batch_size=BATCH)


def status():
    """Return what ``list`` says about apex here."""
    forget()
    (reason,) = availability.reasons_against(get_registry().find("precision", "apex").declaration)
    return reason


def test_the_page(amp):
    """The example of the page makes its Trainers, with an accelerator that is here in place of the GPU."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "apex.md").read_text(), re.DOTALL)
    names = {"__name__": "page"}
    exec(code.replace('accelerator="cuda"', 'accelerator="pretended"'), names)
    assert (
        names["Trainer"](accelerator="pretended", precision=names["ApexPrecision"]("O1")).plan.precision.name == "apex"
    )


def test_another_package_of_that_name(site):
    """The index's own apex, which ends with an ImportError, is told apart by name and version and never imported."""
    fake_apex.write(site, with_amp=False, real=False, version="0.9.10", init="raise ImportError('pyramid')")
    reason = status()
    assert "'apex' 0.9.10 is installed but has no apex.amp: a different package called apex" in reason
    assert "build NVIDIA's apex from its source, release 25.04 or older" in reason
    with pytest.raises(PluginUnavailable, match="a different package called apex"):
        trainer()
    assert "apex" not in sys.modules


def test_release_without_amp(site):
    """A newer apex of NVIDIA's is told to be too new."""
    fake_apex.write(site, with_amp=False)
    reason = status()
    assert "'apex' 0.1 is installed but has no apex.amp: a release without it; build NVIDIA's apex" in reason


def test_missing(site):
    """Where there is no apex, the hint does not name the package that pip would find."""
    reason = status()
    assert "not installed; build NVIDIA's apex" in reason
    assert "pip install" not in reason


@pytest.mark.parametrize(
    ("settings", "token"),
    [({"accelerator": "cpu"}, "device.cuda"), ({"accelerator": "xla"}, "device.cuda")]
    + [({"strategy": name, "devices": 2}, "sharded.gradients") for name in ("ddp_sharded", "fsdp")]
    + [({"strategy": "zero", "devices": 2}, "sharded.optimizer")],
)
def test_refusals(amp, settings, token):
    """It is refused on other devices than CUDA's and with strategies that shard gradients or optimizers."""
    with pytest.raises(InvalidCombination) as caught:
        trainer(**settings)
    assert token in {violation.token for violation in caught.value.violations}


def test_refused_by_both_sides(amp):
    """A strategy with sharded gradients and apex exclude each other, each with its own reason."""
    with pytest.raises(InvalidCombination) as caught:
        trainer(strategy="ddp_sharded", devices=2)
    assert {"sharded.gradients", "amp.apex"} <= {violation.token for violation in caught.value.violations}


@pytest.mark.parametrize(
    "case", [Case("adam", accumulate=3, clip=0.05), Case("two", accumulate=4, clip=0.02, algorithm="value")], ids=str
)
def test_parameters(amp, case):
    """Scaled by apex, accumulated, unscaled once and clipped, a training gives the parameters of the loop by hand."""
    module = Net(case.optimizers)
    apex = trainer(
        precision=at_level("O1"),
        max_epochs=case.epochs,
        accumulate_grad_batches=case.accumulate,
        gradient_clip_val=case.clip,
        gradient_clip_algorithm=case.algorithm,
    )
    apex.fit(module, batches(case.batches))
    assert furthest(dict(module.state_dict()), by_hand(case)) <= 1e-6


def test_order(amp):
    """apex comes between the move and the wrap, scales each micro-batch, and unscales once before each step."""
    trainer(max_epochs=1, accumulate_grad_batches=2).fit(Through(), batches(4))
    assert [("initialize", "Through", "O2", "cpu"), *["scale", "scale", "unscale", "step"] * 2] == amp.EVENTS


class Through(Net):
    """Calls itself, as apex asks for."""

    def forward(self, features):
        return self.first(features) * self.second(features)

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self(batch[0]), batch[1])


WEIGHTS = {"O0": torch.float32, "O1": torch.float32, "O2": torch.float16, "O3": torch.float16}
MASTERS = {**WEIGHTS, "O2": torch.float32}


@pytest.mark.parametrize("level", WEIGHTS)
def test_levels(amp, level):
    """Each level trains, with weights and what optimizers step in its formats; a second run goes on from there."""
    module, stepped = Through(), set()
    before = module.first[0].weight.detach().clone()

    class Watch(Callback):
        def on_before_optimizer_step(self, trainer, module, optimizer):
            stepped.update(p.dtype for group in optimizer.param_groups for p in group["params"])

    run = trainer(precision=at_level(level), max_epochs=1, callbacks=Watch())
    run.fit(module, batches(3))
    assert (run.global_step, run.progress.skipped_steps) == (3, 0)
    assert {parameter.dtype for parameter in module.parameters()} == {WEIGHTS[level]}
    assert stepped == {MASTERS[level]}
    after = module.first[0].weight.detach().float().clone()
    assert not after.equal(before)
    trainer(precision=at_level(level), max_epochs=1).fit(module, batches(3))
    assert not module.first[0].weight.float().equal(after)


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_float32_levels_are_the_loop_by_hand(amp, level):
    """Where the weights stay in float32 and, in host memory, nothing is cast, the parameters are the loop's by hand."""
    case = Case("adam", accumulate=3, clip=0.05)
    module = Net(case.optimizers)
    trainer(
        precision=at_level(level),
        max_epochs=case.epochs,
        accumulate_grad_batches=case.accumulate,
        gradient_clip_val=case.clip,
    ).fit(module, batches(case.batches))
    assert furthest(dict(module.state_dict()), by_hand(case)) <= 1e-6


def test_masters_are_clipped(amp, monkeypatch):
    """At O2 the weights are float16, and what is clipped and stepped are the optimizer's float32 masters."""
    norms = []
    real = torch.optim.SGD.step

    def step(optimizer, *args):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append((gradients[0].dtype, float(torch.stack([g.norm() for g in gradients]).norm())))
        return real(optimizer, *args)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    module = Through()
    trainer(max_epochs=1, gradient_clip_val=0.01).fit(module, batches(3))
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float16}
    assert norms == [(torch.float32, pytest.approx(0.01, abs=1e-5))] * 3


def test_overflow(amp):
    """A window with gradients that are not finite is skipped once, counted, and the next one steps."""

    class Overflows(Net):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * (float("inf") if batch_idx == 1 else 1.0)

    run = trainer(precision=at_level("O1"), max_epochs=1)
    run.fit(Overflows(), batches(3))
    assert [event for event in amp.EVENTS if event in ("step", "skip")] == ["step", "skip", "step"]
    assert run.progress.skipped_steps == 1
    assert amp.STATE["loss_scale"] == 512


def test_state(amp, tmp_path):
    """The scale is saved with a checkpoint and is there again when training goes on."""
    run = trainer(precision=at_level("O1", loss_scale=256.0), max_epochs=1)
    run.fit(Net(), batches(2))
    run.save_checkpoint(tmp_path / "a.ckpt")
    assert torch.load(tmp_path / "a.ckpt")["plugins"]["precision"] == {
        "loss_scaler0": {"loss_scale": 256.0, "unskipped": 2}
    }
    amp.STATE.update(loss_scale=1024.0, unskipped=0)
    trainer(precision=at_level("O1"), max_epochs=2).fit(Net(), batches(2), ckpt_path=tmp_path / "a.ckpt")
    assert amp.STATE == {"loss_scale": 256.0, "unskipped": 4}


@pytest.mark.filterwarnings("error")
def test_schedulers(amp):
    """A scheduler goes on with the optimizer whose step apex has replaced, without torch's warning about it."""

    class Scheduled(Net):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
            self.optimizer = optimizer
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

    module = Scheduled()
    trainer(precision=at_level("O1"), max_epochs=2).fit(module, batches(2))
    assert module.optimizer.param_groups[0]["lr"] == pytest.approx(0.05 / 4)


def test_level(amp):
    """A level that apex does not have is refused by name."""
    with pytest.raises(InvalidArgument, match="O4"):
        at_level("O4")

"""From names to what is run: the claims that a combination makes, and the jobs that show them."""

from dataclasses import replace

import pytest
from support.declared import accelerator, precision, registry_of, strategy

from core.conformance.setup import Standing, lone_strategy, make_setup
from core.declarations import Availability, Exclude, Need
from core.errors import InvalidCombination, UnknownPlugin
from core.registry import get_registry


def jobs(setup):
    """Return the names of the jobs of each program."""
    return {program.name: [job.name for job in program.jobs] for program in setup.programs()}


def made(*declarations, **names):
    """Return the set-up of a registry of these plugins, beside an accelerator and a precision that claim nothing."""
    registry = registry_of(accelerator("metal", preference=1), precision("plain", preference=1), *declarations)
    return make_setup(registry, names)


def test_only_claims_are_run():
    """A strategy that claims nothing is trained and resumed, and no feature is tried."""
    setup = made(strategy("bare"), strategy="bare")
    assert jobs(setup) == {"main": ["plain", "groups", "saved", "exchange"], "second": ["resumed", "raised"]}


def test_claims_are_run():
    """Each claim that has a case is trained."""
    tokens = ("clip.norm", "optimizer.many", "checkpoint.full")
    setup = made(strategy("rich", provides=tokens), strategy="rich")
    assert jobs(setup)["main"] == ["plain", "groups", "clip_norm", "two_optimizers", "saved", "exchange"]
    assert jobs(setup)["alone"] == ["without_strategy"]


def test_accelerator_alone():
    """An accelerator is trained on, and what it claims is tried on its device."""
    claims = accelerator("chip", provides=("dtype.float64", "rpc", "grad_scaler"))
    setup = made(claims, strategy("bare", preference=1), accelerator="chip")
    assert jobs(setup) == {"main": ["plain", "device"]}
    assert setup.tried == ("dtype.float64", "grad_scaler")


def test_two_devices():
    """A strategy that claims devices.many gets two devices, and a meeting at which one rank is missing."""
    many = strategy("many", provides=("devices.many", "launch.spawn"), ranks="device")
    setup = made(many, strategy="many")
    assert setup.plan.world_size == 2
    assert jobs(setup)["main"][-1] == "missing"
    alone = replace(accelerator("lone"), probe=f"{__name__}:one_device")
    assert made(alone, many, accelerator="lone", strategy="many").plan.world_size == 1


def one_device():
    """Probe an accelerator that there is one of."""
    return Availability(1)


def test_hindered_claim():
    """A claim that the rest of the combination refuses is not run, and the reason is kept."""
    half = precision("half", excludes=(Exclude("asked.clip.norm", "it clips by itself"),))
    setup = made(half, strategy("rich", provides=("clip.norm",)), strategy="rich", precision="half")
    standing = setup.standing("clip.norm")
    assert standing.claimed
    assert "it clips by itself" in standing.hindrance
    assert "clip_norm" not in jobs(setup)["main"]
    assert setup.standing("clip.value") == Standing(False)


def test_one_process_with_several_devices():
    """A strategy of one process that claims several devices and reading on others is resumed on one device."""
    tokens = ("devices.many", "checkpoint.other_world_size")
    setup = made(strategy("wide", provides=tokens, ranks="run"), strategy="wide")
    assert (setup.plan.num_devices, setup.plan.world_size) == (2, 1)
    assert jobs(setup)["alone"] == ["other_world_size"]


def test_what_else_a_claim_needs():
    """Synchronised batch norm is claimed by the strategy, and looked at only where the device has a kernel."""
    claims = strategy("rich", provides=("sync_batchnorm",))
    assert "sync_batchnorm.kernel" in made(claims, strategy="rich").standing("sync_batchnorm").hindrance
    able = accelerator("able", provides=("sync_batchnorm.kernel",))
    assert made(able, claims, strategy="rich", accelerator="able").standing("sync_batchnorm") == Standing(True)


def test_refusals():
    """What the Trainer would refuse is refused with its error."""
    with pytest.raises(UnknownPlugin, match="richt"):
        made(strategy("rich"), strategy="richt")
    needy = strategy("needy", needs=(Need("rpc", "its ranks call each other"),))
    with pytest.raises(InvalidCombination, match="its ranks call each other"):
        made(needy, strategy="needy")


def test_lone_strategy():
    """A checkpoint is read without its strategy by the most preferred one that needs nothing."""
    registry = registry_of(
        strategy("ring", ranks="device", preference=90),
        strategy("needy", needs=(Need("rpc", "calls"),), preference=80),
        strategy("alone", preference=5),
        strategy("other", preference=1),
    )
    assert lone_strategy(registry) == "alone"


def test_other_strategy_reads_what_all_ranks_read():
    """A job that goes on alone reads the samples of all ranks, from the end of an epoch."""
    setup = make_setup(get_registry(), {"strategy": "ddp", "accelerator": "cpu"})
    alone = next(program for program in setup.programs() if program.name == "alone")
    assert [(job.name, job.strategy, job.devices, job.alone) for job in alone.jobs] == [
        ("other_world_size", "ddp", 1, True),
        ("without_strategy", "single_device", 1, True),
    ]
    assert {job.resume for job in alone.jobs} == {"../main/saved/epoch.ckpt"}

"""Every accelerator x precision x strategy x number of devices: refused with a reason, or training."""

from __future__ import annotations

import json
from itertools import product

import pytest
from support import observed_script
from support.observed import in_order, observe
from support.reference import make_trainer, run_script

from core.discovery import OWN_DISTRIBUTION
from core.errors import InvalidCombination, PluginUnavailable
from core.registry import get_registry


def built_in(kind):
    """Return the names of the plugins that come with the project."""
    return [found.name for found in get_registry().of_kind(kind) if found.distribution == OWN_DISTRIBUTION]


PRECISIONS = built_in("precision")
CELLS = list(product(built_in("accelerator"), PRECISIONS, built_in("strategy"), [1, 2]))
KNOWN_STRATEGIES = {"single_device", "ddp", "ddp_spawn", "ddp_sharded"}
"""Those of which the table says everything on the cpu: all is valid there, but several devices for one."""
CELLS_OF_TRAINING = [
    pytest.param(*cell, marks=() if cell[2] in KNOWN_STRATEGIES else pytest.mark.long) for cell in CELLS
]
ONE_DEVICE_ONLY = {"single_device"}
GPU_ONLY = {"apex"}


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """Return a function that observes a strategy on two devices with every precision, in one program, once."""
    known = {}

    def look(accelerator, strategy):
        if (accelerator, strategy) not in known:
            output = tmp_path_factory.mktemp(strategy) / "observed.json"
            run_script(observed_script.__file__, accelerator, strategy, output, *PRECISIONS)
            ranks = sorted(output.parent.glob("observed.json.*"))
            known[accelerator, strategy] = [json.loads(path.read_text()) for path in ranks]
        return known[accelerator, strategy]

    return look


def plan_of(accelerator, precision, strategy, devices):
    """Return the plan, or the error that refuses it."""
    try:
        return make_trainer(accelerator=accelerator, precision=precision, strategy=strategy, devices=devices).plan
    except (InvalidCombination, PluginUnavailable) as error:
        return error


@pytest.mark.timeout(300)  # the first cell of a strategy trains them all
@pytest.mark.processes
@pytest.mark.parametrize(("accelerator", "precision", "strategy", "devices"), CELLS_OF_TRAINING)
def test_cell(accelerator, precision, strategy, devices, observed):
    """A combination is refused at construction, saying why, or it trains three steps in the order of the design."""
    plan = plan_of(accelerator, precision, strategy, devices)
    if isinstance(plan, InvalidCombination):
        assert plan.violations
        assert all(violation.reason and violation.reason in str(plan) for violation in plan.violations)
    elif isinstance(plan, PluginUnavailable):
        assert plan.reasons
        assert all(reason in str(plan) for reason in plan.reasons)
    elif plan.launch.how == "here":
        seen = observe(strategy, precision, devices, accelerator)
        assert seen.events == in_order(precision, seen.exchanges, seen.skips, accelerator)
        assert seen.steps == 3
    else:
        for rank in observed(accelerator, strategy):
            seen = rank[precision]
            assert seen.get("steps") == 3, seen
            assert seen["events"] == in_order(precision, seen["exchanges"], seen["skips"], accelerator)


@pytest.mark.parametrize(("precision", "strategy", "devices"), sorted({cell[1:] for cell in CELLS}))
def test_table_of_the_cpu(precision, strategy, devices):
    """On the cpu every precision but those for GPUs goes with every strategy, on as many devices as it has."""
    plan = plan_of("cpu", precision, strategy, devices)
    if strategy in KNOWN_STRATEGIES:
        refused = precision in GPU_ONLY or (strategy in ONE_DEVICE_ONLY and devices > 1)
        assert isinstance(plan, InvalidCombination) == refused


@pytest.mark.parametrize("cell", CELLS, ids="-".join(["%s"] * 4).__mod__)
def test_same_answer(cell):
    """The list of valid combinations and the construction of a Trainer give the same answer."""
    accelerator, precision, strategy, devices = cell
    plan = plan_of(*cell)
    names = {"accelerator": accelerator, "precision": precision, "strategy": strategy}
    trainer = make_trainer(devices=1)
    valid = list(get_registry().valid_combinations(trainer.plan.request, names))
    if devices == 1:
        assert bool(valid) == (not isinstance(plan, InvalidCombination))


@pytest.mark.timeout(300)
@pytest.mark.processes
def test_exchanges(observed):
    """Data parallel strategies exchange gradients once for each window, its shorter last one included."""
    for strategy in ("ddp", "ddp_sharded"):
        for rank in observed("cpu", strategy):
            assert rank["32-true"]["exchanges"]
            assert rank["32-true"]["events"].count("exchange") == 3

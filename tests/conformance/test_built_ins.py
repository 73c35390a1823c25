"""The built-in plugins are held to their declarations like any other."""

import re

import pytest

from core.errors import InvalidCombination, PluginUnavailable
from core.registry import get_registry
from core.request import Request

ALONE = ["single_device", "dp", "ddp2"]  # one process here, for this is one machine
SPAWNING = ["ddp_spawn", "ddp_sharded_spawn", "ddp_fork"]
PARTED = ["rpc", "rpc_sequential", "pipeline"]  # ranks that hold parts of one model
STRATEGIES = ["ddp", "ddp_sharded", "zero", "fsdp", *SPAWNING, *PARTED]
PRECISIONS = ["32-true", "64-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed"]

UNSEEN = re.compile(r"^claimed, and not looked at here: \d+\n((?:  .*\n)+)", re.MULTILINE)
NO_CHECK = "the kit has no check for it"
NO_KERNEL = "the check needs sync_batchnorm.kernel, which none of accelerator 'cpu'"
REASONS = {
    "parted": (NO_CHECK, NO_KERNEL, "ranks hold parts of one model", "one rank runs the loop"),
    "several": (NO_CHECK, NO_KERNEL),
    "alone": (NO_CHECK, NO_KERNEL, "this run has one process", "this run has one device"),
    "precision": (NO_CHECK, NO_KERNEL, "precision '16-mixed' excludes that optimizer.closure is asked for"),
}
"""Why something that a built-in claims may go without a verdict on the cpu."""


def assert_passes(answer, reasons):
    """Everything that was looked at passed, and what was not has one of the reasons."""
    assert answer.code == 0, answer.out
    assert answer.counts["passed"] > 15
    assert not {"failed", "not judged"} & set(answer.counts), answer.out
    unseen = UNSEEN.search(answer.out)
    for line in unseen[1].splitlines() if unseen else ():
        assert any(reason in line for reason in reasons), line


def test_every_built_in_is_held():
    """Each built-in strategy and precision that can run on the cpu of this machine is in these tests."""
    registry = get_registry()
    held = {"strategy": {*ALONE, *STRATEGIES}, "precision": {*PRECISIONS}}
    for kind, names in held.items():
        runs_here = set()
        for _, declaration in registry.sound(kind):
            if registry.find(kind, declaration.name).distribution == "interlock":
                try:
                    registry.resolve(Request(accelerator="cpu", **{kind: declaration.name}))
                except (InvalidCombination, PluginUnavailable):
                    continue
                runs_here.add(declaration.name)
        assert runs_here == names


@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_of_several_processes(kit, strategy):
    """A built-in strategy passes every check with two processes."""
    answer = kit("--strategy", strategy, "--accelerator", "cpu", "--devices", "2")
    assert_passes(answer, REASONS["parted" if strategy in PARTED else "several"])
    assert "2 processes" in answer.out


@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategy", ALONE)
def test_one_process(kit, strategy):
    """A built-in strategy of one process passes every check, as do the cpu and the default precision with it."""
    answer = kit("--strategy", strategy, "--accelerator", "cpu", "--precision", "32-true")
    assert_passes(answer, REASONS["alone"])
    assert "1 process" in answer.out


@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_precisions(kit, precision):
    """A built-in precision passes every check in one process."""
    answer = kit("--precision", precision, "--accelerator", "cpu")
    assert_passes(answer, REASONS["precision"])
    assert "1 process" in answer.out

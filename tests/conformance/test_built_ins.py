"""The built-in plugins are held to their declarations like any other."""

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]
STRATEGIES = ["ddp", "ddp_spawn", "ddp_sharded"]
PRECISIONS = ["64-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed"]


def assert_passes(answer):
    """Everything that was looked at passed, and nothing was left without a verdict."""
    assert answer.code == 0, answer.out
    assert answer.counts["passed"] > 15
    assert not {"failed", "not judged"} & set(answer.counts), answer.out
    assert "skipped" not in answer.out.splitlines()[-1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_of_several_processes(kit, strategy):
    """A built-in strategy passes every check with two processes."""
    answer = kit("--strategy", strategy, "--devices", "2")
    assert_passes(answer)
    assert "2 processes" in answer.out


def test_one_process(kit):
    """The strategy of one process, the cpu and the default precision pass every check about them."""
    assert_passes(kit("--strategy", "single_device", "--accelerator", "cpu", "--precision", "32-true"))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_precisions(kit, precision):
    """A built-in precision passes every check in one process."""
    answer = kit("--precision", precision)
    assert_passes(answer)
    assert "1 process" in answer.out

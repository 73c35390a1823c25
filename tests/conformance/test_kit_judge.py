"""Verdicts on runs that were made up."""

import pytest
import torch
from support.declared import accelerator, precision, registry_of, strategy

from core.conformance.cases import CASES, Job
from core.conformance.judge import Judge, epochs_of
from core.conformance.programs import Ending, Facts
from core.conformance.reference import Arithmetic, by_hand
from core.conformance.setup import make_setup
from core.registry import get_registry

RANKS, PER_RANK = 2, 4
NEVER_RAN = Ending(0, 1.0, "", None)


@pytest.fixture
def judge():
    """Return a judge over two ranks of the cpu."""
    return Judge(make_setup(get_registry(), {"strategy": "ddp", "accelerator": "cpu"}), lab=None)


def run_of(name, tmp_path, replicas=RANKS):
    """Return the facts of a run that did everything right on two ranks, of which so many read data of their own."""
    case = CASES[name]
    job = Job(name, name, "any", "any", "any", RANKS, RANKS)
    size = PER_RANK * replicas
    epochs = [[range(at * size, at * size + size) for at in range(case.micro_batches)] for _ in range(case.epochs)]
    steps = by_hand(case, epochs, job.samples, Arithmetic())
    facts = Facts(job, tmp_path, NEVER_RAN)
    torch.save(steps[-1], tmp_path / "home.pt")
    for rank in range(RANKS):
        batches = [
            (epoch, list(batch)[rank % replicas :: replicas]) for epoch, each in enumerate(epochs) for batch in each
        ]
        own = [{key: value.clone() for key, value in step.items()} for step in steps]
        observed = {"weights": "torch.float32", "forward": "torch.float32"}
        facts._ranks.append({"batches": batches, "steps": own, "skipped": [0] * len(steps), "observed": observed})
    return facts


@pytest.mark.parametrize("name", ["plain", "accumulated", "clip_norm", "closure"])
@pytest.mark.parametrize("replicas", [1, RANKS])
def test_a_right_run(judge, tmp_path, name, replicas):
    """A run that does what the hand-written loop does has no fault, whether ranks share samples or not."""
    facts = run_of(name, tmp_path, replicas)
    assert facts.hold_parts is (replicas == 1)
    assert judge.ranks_differ(facts) == ""
    assert judge.differs_from_reference(facts) == ""


def test_a_wrong_step(judge, tmp_path):
    """A run that leaves the hand-written loop is told the first step after which it did, and the parameter."""
    facts = run_of("plain", tmp_path)
    for step in facts.ranks[0]["steps"][3:]:
        step["2.bias"] += 0.5
    assert judge.differs_from_reference(facts).startswith(
        "after step 4 of 6 it differs from the hand-written loop: parameter 2.bias differs by 0."
    )


def test_a_rank_apart(judge, tmp_path):
    """Ranks that hold different parameters are told which rank, and from which step on."""
    facts = run_of("plain", tmp_path)
    facts.ranks[1]["steps"][5]["0.weight"] += 1e-4
    assert judge.ranks_differ(facts).startswith("after step 6 of 6, rank 1 and rank 0 hold different parameters")


def test_ranks_with_parts_of_a_model(judge, tmp_path):
    """Where ranks hold parts of one model, the parameters that come home are compared."""
    facts = run_of("plain", tmp_path, replicas=1)
    facts.ranks[1]["steps"][5]["0.weight"] += 1.0
    assert judge.ranks_differ(facts) == judge.differs_from_reference(facts) == ""
    torch.save({name: value + 1 for name, value in facts.home.items()}, tmp_path / "home.pt")
    assert "differs from the hand-written loop" in judge.differs_from_reference(facts)


def test_number_of_steps(judge, tmp_path):
    """A run with too few steps is told so."""
    facts = run_of("accumulated", tmp_path)
    facts.ranks[0]["steps"].pop()
    assert judge.differs_from_reference(facts) == "it made 5 optimizer steps where the hand-written loop makes 6"


def test_samples_of_all_ranks(tmp_path):
    """A micro-batch is what all ranks read in it; what several read counts once."""
    apart, shared = run_of("plain", tmp_path), run_of("plain", tmp_path, replicas=1)
    assert sorted(list(epochs_of(apart))[1][2]) == list(range(16, 24))
    assert next(epochs_of(shared))[1] == [4, 5, 6, 7]


def test_tolerance(judge, tmp_path):
    """The coarsest format that was met decides, unless a tolerance was given."""
    facts = run_of("plain", tmp_path)
    assert judge.tolerance(facts) == 1e-6
    facts.ranks[0]["observed"]["forward"] = "torch.bfloat16"
    assert judge.tolerance(facts) == 3e-2
    given = make_setup(get_registry(), {"strategy": "ddp", "accelerator": "cpu"}, tolerance=0.5)
    assert Judge(given, lab=None).tolerance(facts) == 0.5


def strange_judge(*tokens, **options):
    """Return a judge over two ranks of a strategy that provides only this."""
    many = strategy("strange", provides=("devices.many", "launch.spawn", *tokens), ranks="device")
    registry = registry_of(accelerator("metal", preference=1), precision("plain", preference=1), many)
    return Judge(make_setup(registry, {"strategy": "strange"}, **options), lab=None)


def test_what_is_not_claimed_is_not_compared(tmp_path):
    """Ranks apart fail where steps.equal is claimed, a strange result where steps.global is or a tolerance given."""
    facts = run_of("plain", tmp_path)
    facts.ranks[1]["steps"][2]["0.weight"] += 1.0
    facts.ranks[0]["steps"][2]["0.weight"] -= 1.0
    silent = strange_judge()
    assert silent.ranks_differ(facts) == silent.differs_from_reference(facts) == ""
    assert "rank 1 and rank 0 hold different parameters" in strange_judge("steps.equal").ranks_differ(facts)
    assert "differs from the hand-written loop" in strange_judge("steps.global").differs_from_reference(facts)
    assert "differs from the hand-written loop" in strange_judge(tolerance=0.1).differs_from_reference(facts)
    assert strange_judge(tolerance=5.0).differs_from_reference(facts) == ""


def test_steps_are_counted_all_the_same(tmp_path):
    """A run that need not follow the hand-written loop still makes as many steps."""
    facts = run_of("accumulated", tmp_path)
    facts.ranks[0]["steps"].pop()
    assert strange_judge().differs_from_reference(facts).startswith("it made 5 optimizer steps")

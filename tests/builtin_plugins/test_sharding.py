"""zero and fsdp: each rank holds a part, and the outcome is that of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rank_program
import torch
from rank_program import CASES, VARIANTS, Noisy, go_on
from support.declared import accelerator, registry_of
from support.reference import make_trainer, run_script

from builtin_plugins.fp32 import DECLARATION as FP32
from builtin_plugins.fsdp import DECLARATION as FSDP
from builtin_plugins.fsdp.strategy import FSDPStrategy
from builtin_plugins.zero import DECLARATION as ZERO
from core.errors import InvalidCombination
from core.optim import state_bytes
from core.request import Request

STRATEGIES = ["zero", "fsdp"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return a function that gives what each rank of a strategy found; its processes run once for all tests."""
    results: dict[str, dict[str, Any]] = {}

    def get(strategy: str) -> dict[str, Any]:
        if strategy not in results:
            folder = tmp_path_factory.mktemp(strategy)
            results[strategy] = {"folder": folder}
            for action in ("train", "resume"):
                run_script(rank_program.__file__, strategy, folder / "found", action)
                results[strategy][action] = [
                    json.loads((folder / f"found.{action}.{rank}").read_text()) for rank in range(2)
                ]
        return results[strategy]

    return get


def whole_bytes() -> int:
    """Return the bytes of optimizer state of one process."""
    module = Noisy()
    made, _ = module.configure_optimizers()
    module.training_step([torch.randn(4, 6), torch.randn(4, 2)], 0).backward()
    for optimizer in made:
        optimizer.step()
    return sum(map(state_bytes, made))


@pytest.mark.processes
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equals_the_loop_by_hand(found, strategy):
    """Ranks train to the parameters of one process on the joined batches, with windows, clipping and two optimizers."""
    for rank in found(strategy)["train"]:
        for variant in rank.values():
            assert len(variant["distances"]) == len(CASES)
            for case, distance in variant["distances"].items():
                assert distance <= (2e-4 if "16-mixed" in case else 1e-6), case
            assert variant["manual"] <= 1e-6


@pytest.mark.processes
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_resumed_ranks_have_the_same_losses(found, strategy):
    """Ranks that go on from inside an epoch have the losses and metrics of the unbroken run, each its own."""
    whole, resumed = found(strategy)["train"], found(strategy)["resume"]
    for rank in range(2):
        for name, variant in whole[rank].items():
            assert len(variant["losses"]) == 15
            assert resumed[rank][name]["losses"] == variant["losses"][8:]
            assert resumed[rank][name]["metrics"] == variant["metrics"]
            assert resumed[rank][name]["weight"] == variant["weight"]
    assert whole[0] != whole[1]


@pytest.mark.processes
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_rank_holds_its_part_of_the_optimizer_state(found, strategy):
    """The ranks' optimizer state adds up to that of one process, and none holds much more than half."""
    total = whole_bytes()
    for name in found(strategy)["train"][0]:
        held = [rank[name]["bytes"] for rank in found(strategy)["train"]]
        steps = 4 * sum(1 for _ in Noisy().body.parameters())  # each rank may count steps by itself
        assert total <= sum(held) <= total + steps
        # torch's ZeroRedundancyOptimizer gives each parameter to one rank; fully_shard cuts each
        assert max(held) <= total * (0.65 if strategy == "zero" else 0.51)


@pytest.mark.processes
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_sample_is_evaluated_once(found, strategy):
    """Ranks with different numbers of samples evaluate all of them once, during a fit and in a validate after it."""
    for rank in found(strategy)["train"]:
        for variant in rank.values():
            assert variant["metrics"]["seen"] == variant["validated"]["seen"] == rank_program.UNEVEN


@pytest.mark.processes
def test_module_is_whole_after_a_run_with_fsdp(found):
    """After the run the module works by itself on rank 0, and gives the loss that the ranks validated together."""
    for variant in found("fsdp")["train"][0].values():
        assert variant["val_loss"] == pytest.approx(variant["validated"]["val_loss"], abs=1e-6)


@pytest.mark.processes
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("reader", ["single_device", *STRATEGIES])
def test_checkpoint_is_read_by_other_layouts(found, strategy, reader):
    """One process without shards goes on from two ranks' checkpoint, and so does one rank of either strategy."""
    folder: Path = found(strategy)["folder"]
    for number in range(len(VARIANTS.get(strategy, [""]))):
        assert go_on(reader, 1, str(folder / f"{number}.epoch.ckpt")) <= 1e-6


@pytest.mark.processes
def test_fsdp_gathers_outermost_parameters_once_in_a_step(found):
    """A step gathers them once, and a part by class twice: it is freed in between; each group's gradients go once."""
    for rank in found("fsdp")["train"]:
        counted = {name: variant["exchanges"] for name, variant in rank.items()}
        assert counted["one group"] == {"_allgather_base_": 1, "_reduce_scatter_base_": 1}
        assert counted["groups by class"] == {"_allgather_base_": 3, "_reduce_scatter_base_": 2}
        assert (
            counted["groups by size, kept"]["_allgather_base_"]
            == counted["groups by size, kept"]["_reduce_scatter_base_"]
        )


@pytest.mark.processes
def test_fsdp_frees_parameters_between_evaluation_steps(found):
    """No parameter is whole when a step of evaluation is over."""
    assert [variant["whole"] for rank in found("fsdp")["train"] for variant in rank.values()] == [0] * 6


@pytest.mark.processes
def test_sharded_checkpoint_is_a_folder(found):
    """With checkpoint='sharded' each of the two ranks has written a file of its own."""
    folder: Path = found("fsdp")["folder"]
    assert (folder / "0.ckpt").is_file()
    assert {"__0_0.distcp", "__1_0.distcp", "checkpoint.pt"} <= {path.name for path in (folder / "2.ckpt").iterdir()}


@pytest.mark.parametrize("declaration", [ZERO, FSDP], ids=STRATEGIES)
@pytest.mark.parametrize(
    ("provides", "session", "token"),
    [
        (("device.cpu",), "session.script", "collective.nccl"),
        (("device.cpu", "collective.gloo"), "session.interactive", "session.script"),
    ],
    ids=["no group", "no script"],
)
def test_unmet_need_is_refused(declaration, provides, session, token):
    """Without a process group, and without a script to run again, the strategy is refused."""
    registry = registry_of(accelerator("odd", provides=provides), FP32, declaration)
    with pytest.raises(InvalidCombination) as refused:
        registry.resolve(Request("odd", "32-true", declaration.name, session=session))
    assert [violation.token.partition(" ")[0] for violation in refused.value.violations] == [token]


class WithClosure(Noisy):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters())


class Manual(Noisy):
    automatic_optimization = False


@pytest.mark.parametrize(
    ("strategy", "module", "token"),
    [
        ("zero", WithClosure, "asked.optimizer.closure"),
        ("fsdp", WithClosure, "asked.optimizer.closure"),
        ("fsdp", Manual, "manual_optimization"),
    ],
)
def test_module_that_asks_for_more_is_refused(strategy, module, token):
    """Closures over whole parameters, and manual optimization where forward gathers them, are refused."""
    trainer = make_trainer(strategy=strategy, devices=1, max_epochs=1)
    with pytest.raises(InvalidCombination) as refused:
        trainer.fit(module(), [[torch.randn(4, 6), torch.randn(4, 2)]])
    assert token in [violation.token for violation in refused.value.violations]


def test_strategy_options_are_shown_in_the_plan():
    """Options of a configured instance stand in the plan."""
    plan = make_trainer(strategy=FSDPStrategy(wrap="Linear", checkpoint="sharded"), devices=2).plan
    assert dict(plan.strategy.options)["wrap"] == ("Linear",)
    assert "checkpoint='sharded'" in str(plan)

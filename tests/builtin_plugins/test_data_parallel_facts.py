"""What holds on two ranks of the data-parallel strategies, whole or sharded."""

from __future__ import annotations

import data_parallel_facts
import pytest
import torch
from data_parallel_facts import BATCHES, FIRST, SAMPLES, Losses, SecondOrder, loader
from support.reference import dataset, furthest, make_trainer, run_script

from core.checkpoint import read_checkpoint

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


def one_process(steps, path=None):
    """Train the reference net in one process for so many steps, and save it."""
    module = Losses()
    trainer = make_trainer(max_steps=steps, max_epochs=-1)
    trainer.fit(module, loader(1))
    if path is not None:
        trainer.save_checkpoint(path)
    return module


@pytest.fixture(scope="module", params=["ddp", "ddp_sharded"])
def ranks(request, tmp_path_factory):
    """The strategy, the folder, and what each rank found out."""
    folder = tmp_path_factory.mktemp(request.param)
    module = Losses()
    trainer = make_trainer(max_epochs=1)
    trainer.fit(module, loader(1, FIRST))
    trainer.save_checkpoint(folder / "single_device.ckpt")
    run_script(data_parallel_facts.__file__, request.param, folder)
    return request.param, folder, [torch.load(folder / f"facts.{rank}") for rank in range(2)]


def test_overflow_on_one_rank(ranks):
    """When one rank's gradients overflow, all ranks skip the step, back off alike, and step together afterwards."""
    _, _, found = ranks
    first, second = (rank["overflow"] for rank in found)
    assert first == second
    before = Losses().first[0].bias.tolist()
    (skipped, half, count), (moved, _, _) = first
    assert skipped == before != moved
    assert (half, count) == (512.0, 1)


def test_values_across_ranks(ranks):
    """Values with sync_dist are those over all samples, each counted once, on ranks of different share or none."""
    _, _, found = ranks
    for number, count in enumerate((SAMPLES, 1)):
        squares = [float(value**2) for value in range(count)]
        seen = [rank["metrics"][number][0] for rank in found]
        assert sorted(seen[0] + seen[1]) == squares
        for rank in found:
            values = rank["metrics"][number][1]
            assert values["mean"] == pytest.approx(sum(squares) / count, rel=1e-12)
            assert (values["sum"], values["count"]) == (sum(squares), count)
            assert (values["max"], values["min"]) == (max(squares), min(squares))
    own = found[0]["metrics"][0][1]["own"]
    assert own == pytest.approx(sum(v**2 for v in range(0, SAMPLES, 2)) / 6)


def test_order_of_samples(ranks):
    """In each epoch the ranks share all samples without overlap, in another order than before."""
    _, _, found = ranks
    everything = sorted(dataset(2).tensors[0][:, 0].tolist())
    epochs = list(zip(*(rank["order"] for rank in found), strict=True))
    assert [sorted(first + second) for first, second in epochs] == [everything] * 3
    assert len({tuple(first) for first, _ in epochs}) == 3


def test_failure_to_save(ranks):
    """A file that cannot be written is an error with its name on every rank, and training and saving go on."""
    strategy, folder, found = ranks
    for rank in found:
        place, full, state, good = rank["failing"]["told"]
        assert str(folder / "file" / "last.ckpt") in place
        assert "No space left on device" in full
        assert f"{strategy}-full.ckpt" in full
        assert "torch.nn.modules.linear.Linear" in state
        assert "['mine']" in state
        assert good == "saved"
    assert read_checkpoint(folder / f"{strategy}-good.ckpt")["global_step"] == BATCHES


def test_state_is_given_back(ranks):
    """After saving no rank holds more than its own part of a sharded optimizer's state."""
    strategy, _, found = ranks
    sizes = [sum(rank["failing"]["size"]) for rank in found]
    assert [rank["failing"]["held"] for rank in found] == [[0], [0]]
    parameters = list(Losses().parameters())
    whole = sum(2 * 4 * parameter.numel() + 4 for parameter in parameters)
    assert sum(sizes) == (whole if strategy == "ddp_sharded" else 2 * whole)
    assert max(sizes) < (0.7 * whole if strategy == "ddp_sharded" else whole + 1)


def test_file_equals_that_of_one_process(ranks, tmp_path):
    """After the same steps the file of two ranks holds the moments of one process, parameter by parameter (1e-6)."""
    strategy, folder, _ = ranks
    one_process(FIRST, tmp_path / "one.ckpt")
    ours, theirs = read_checkpoint(folder / f"{strategy}.ckpt"), read_checkpoint(tmp_path / "one.ckpt")
    assert furthest(ours["state_dict"], theirs["state_dict"]) <= 1e-6
    (state,), (expected,) = ours["optimizer_states"], theirs["optimizer_states"]
    assert state["state"].keys() == expected["state"].keys()
    for number, moments in expected["state"].items():
        assert furthest(state["state"][number], moments) <= 1e-6
    assert [g["params"] for g in state["param_groups"]] == [g["params"] for g in expected["param_groups"]]


def test_one_process_goes_on_from_two(ranks):
    """One process goes on from the file of two ranks with the losses of its own unbroken run (relative 1e-5)."""
    strategy, folder, found = ranks
    module = Losses()
    trainer = make_trainer(max_epochs=1)
    # a place inside an epoch means another thing to another number of ranks: it is read again from its start
    with pytest.warns(UserWarning, match=f"its first {FIRST} batches repeat"):
        trainer.fit(module, loader(1), ckpt_path=folder / f"{strategy}.ckpt")
    unbroken = one_process(FIRST).losses
    both = [sum(pair) / 2 for pair in zip(*(rank["layouts"][0] for rank in found), strict=True)]
    assert both == pytest.approx(unbroken, rel=1e-5)
    expected = Losses()
    again = make_trainer(max_steps=FIRST + BATCHES, max_epochs=-1)
    again.fit(expected, [*list(loader(1))[:FIRST], *loader(1)])
    assert module.losses == pytest.approx(expected.losses[FIRST:], rel=1e-5)


def test_two_go_on_from_one_process(ranks):
    """Two ranks go on from the file of one process with, on average, the losses of its unbroken run (relative 1e-5)."""
    strategy, folder, found = ranks
    expected = Losses()
    trainer = make_trainer(max_epochs=2)
    trainer.fit(expected, loader(1, FIRST))
    trainer.save_checkpoint(folder / "unbroken.ckpt")
    both = [sum(pair) / 2 for pair in zip(*(rank["layouts"][1] for rank in found), strict=True)]
    assert both == pytest.approx(expected.losses[FIRST:], rel=1e-5)
    ours, theirs = (read_checkpoint(folder / f"{name}.ckpt") for name in (f"{strategy}-went-on", "unbroken"))
    for number, moments in theirs["optimizer_states"][0]["state"].items():
        assert furthest(ours["optimizer_states"][0]["state"][number], moments) <= 1e-6


def test_without_optimizer(ranks):
    """A module without an optimizer trains in windows as any other."""
    _, _, found = ranks
    assert [rank["others"]["bare"] for rank in found] == [3, 3]


def test_closures(ranks):
    """With LBFGS two ranks evaluate as often as one process and come to its weights (1e-5)."""
    strategy, _, found = ranks
    if strategy == "ddp_sharded":
        assert "lbfgs" not in found[0]["others"]  # refused: see tests/core/optim/test_lbfgs.py
        return
    module = SecondOrder()
    make_trainer(max_epochs=1).fit(module, loader(1))
    for rank in found:
        losses, weights = rank["others"]["lbfgs"]
        assert len(losses) == len(module.losses)
        assert furthest(weights, module.state_dict()) <= 1e-5

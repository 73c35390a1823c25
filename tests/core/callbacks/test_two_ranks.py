"""Callbacks with two processes that see different values."""

import json
from pathlib import Path

import pytest
import torch
from support.nets import loader, quiet_trainer
from support.reference import run_script
from two_ranks import Joint

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Run the script once, and return its folder and what each rank saw."""
    folder = tmp_path_factory.mktemp("ranks")
    done = run_script(Path(__file__).with_name("two_ranks.py"), folder)
    return folder, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)], done


def test_rank_zero_decides_for_both(ended):
    """What is saved, what is kept and when training ends follows rank 0's values on both ranks."""
    folder, (first, second), _ = ended
    assert first == second
    assert first["best"] == ["epoch=2-step=12.ckpt", "epoch=3-step=16.ckpt"]
    assert first["scores"] == [7.0, 6.0]
    assert sorted(path.name for path in (folder / "best").iterdir()) == [*first["best"], "last.ckpt"]
    assert first["stopped"] == [3, 2, 9.0]
    assert first["timer"] == 2


def test_both_name_the_same_run(ended):
    """Versions and the folder of checkpoints are those that rank 0 chose, and rank 0 alone wrote."""
    folder, (first, _), done = ended
    assert first["versions"] == [0, 0]
    # the folder is there before the second rank asks for its name: prepare_data made it, or training
    assert first["log_dirs"] == [str(folder / part / "interlock_logs/version_0") for part in ("logs", "later")]
    assert first["folder"] == "logs/interlock_logs/version_0/checkpoints"
    assert sorted(path.name for path in (folder / "logs").rglob("version_*")) == ["version_0", "version_0"]
    assert len(list((folder / "logs").rglob("events.out*"))) == 1
    assert done.stderr.count("[2, 4]") == 1  # the summary's size, shown once


def test_each_rank_writes_its_predictions(ended):
    """Predictions lie in a file per rank, and their places together are all of the data."""
    folder, _, _ = ended
    parts = [torch.load(folder / f"predictions/predictions_rank_{rank}.pt", weights_only=True) for rank in (0, 1)]
    places = [place for part in parts for batch in part["indices"][0] for place in batch]
    assert sorted(places) == list(range(6))
    assert [sum(len(batch) for batch in part["predictions"][0]) for part in parts] == [3, 3]


def test_gathered_outputs_bring_gradients_back(ended):
    """A loss over what all_gather brought from all ranks trains as one process does on the joined batches."""
    _, (first, second), _ = ended
    module = Joint()
    quiet_trainer().fit(module, loader(3, 4))
    assert first["joint"] == second["joint"]
    for found, expected in zip(first["joint"], module.parameters(), strict=True):
        torch.testing.assert_close(torch.tensor(found), expected.detach(), rtol=1e-5, atol=1e-7)
    assert first["gathered"] == [[2, 2, 4], [[0, 1], [True, False]]]
    assert module.shape == [4, 4]  # one rank adds no dimension

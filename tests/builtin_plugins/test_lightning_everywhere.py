"""A LightningModule as it is trains, validates, tests, predicts, saves and resumes under every strategy."""

from __future__ import annotations

import json

import pytest
from support.reference import TESTS, run_script

pytest.importorskip("lightning", reason="lightning is not installed; pip install lightning")

ONE = {"single_device": 1, "dp": 2, "ddp2": 1, "rpc": 2}
"""Strategies whose steps take the batches one at a time, and how many devices they get here."""
TWO = ("ddp", "ddp_spawn", "ddp_fork", "ddp_sharded", "ddp_sharded_spawn", "zero", "fsdp")
"""Those of which two ranks share the batches."""


def outcome(strategy, devices, folder):
    """Return what the program wrote."""
    output = folder / "found.json"
    run_script(TESTS / "builtin_plugins" / "lightning_program.py", strategy, devices, folder, output)
    return json.loads(output.read_text())


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """What one process comes to, and what two ranks of ddp come to."""
    alone, shared = (tmp_path_factory.mktemp(name) for name in ("alone", "shared"))
    return {1: outcome("single_device", 1, alone), 2: outcome("ddp", 2, shared)}


@pytest.mark.processes
@pytest.mark.parametrize("strategy", [*ONE, *TWO])
def test_unmodified_module(strategy, reference, tmp_path):
    """Losses are those of the same batches in one process, or on two ranks of ddp, and the run resumes."""
    expected = reference[1 if strategy in ONE else 2]
    found = outcome(strategy, ONE.get(strategy, 2), tmp_path)
    assert found["validated"] == pytest.approx(expected["validated"], rel=1e-5)
    assert found["tested"] == found["validated"]
    assert found["predicted"] == expected["predicted"] > 0
    assert (found["epochs"], found["steps"], found["width"]) == (3, 1.5, 8)

"""A step of each strategy is what a person would write with torch or fairscale: the same exchanges, nothing more."""

import json
import os
import sys

import pytest
from support.scripts import TESTS, run

pytestmark = pytest.mark.processes

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
SCRIPT = """
import json, os, sys
sys.path.append(os.environ["BENCHMARKS"])
import strategies
import torch
import torch.distributed as dist
from step_overhead import make_loader, quietly
from support.scripts import note
from timing import Clock

STEPS = 10

class Counter(Clock):
    # looks at the steps that the benchmark would time
    def tick(self):
        if self._count == self.warmup:
            self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            self.profile.start()
        elif self._count == self.warmup + self.steps:
            self.profile.stop()
        super().tick()

def counts(run):
    counter.reset()
    quietly(run)()
    events = {e.key: e.count for e in counter.profile.key_averages()}
    exchanges = {key: count / STEPS for key, count in events.items() if key.startswith("c10d::")}
    waits = sum(count for key, count in events.items() if key in ("aten::item", "aten::_local_scalar_dense"))
    return {"exchanges": exchanges, "waits": waits / STEPS, "operations": sum(events.values()) / STEPS}

torch.set_num_threads(1)
dist.init_process_group("gloo")
counter = Counter(4, STEPS)
loader = make_loader(counter.total, "batches")
found = {}
for name, by_hand in strategies.BY_HAND.items():
    in_parts = strategies.IN_PARTS.get(name)
    if in_parts:
        ours = lambda: strategies.ours_in_parts(counter, loader, in_parts)
    else:
        ours = lambda: strategies.ours(counter, loader, name)
    found[name] = {"by hand": counts(lambda: by_hand(counter, loader)), "ours": counts(ours)}
note(f"found{dist.get_rank()}", json.dumps(found))
dist.destroy_process_group()
"""
TOLD = {"pipeline": {"c10d::broadcast_": 1.0}}
"""What comes on top: the last stage tells the others the loss and what was logged, so that all ranks have it."""


def test_a_step_exchanges_what_one_by_hand_does(tmp_path):
    """Each step has the collectives of the same step by hand, waits for no value, and has no more operations."""
    ended = run(tmp_path, SCRIPT, command=TORCHRUN, env={"BENCHMARKS": os.fspath(TESTS.parent / "benchmarks")})
    assert ended.status == 0, ended
    for rank in (0, 1):
        found = json.loads(ended.note(f"found{rank}"))
        assert set(found) == {"ddp", "ddp_sharded", "zero", "fsdp", "pipeline"}
        for name, counted in found.items():
            ours, by_hand = counted["ours"], counted["by hand"]
            assert ours["exchanges"] == {**by_hand["exchanges"], **TOLD.get(name, {})}, (name, rank)
            if name not in TOLD:
                assert ours["waits"] == by_hand["waits"] == 0, (name, rank)
                assert ours["operations"] <= by_hand["operations"], (name, rank)

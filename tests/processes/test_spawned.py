"""Spawned ranks bring their results home, and leave nothing else."""

import json

import pytest
from support.scripts import run

pytestmark = pytest.mark.processes

HOME = """
import json, os
import torch
from builtin_plugins.ddp_spawn.strategy import DDPSpawnStrategy
from core import Callback, ModelCheckpoint
from support.scripts import note
from support.tiny import Tiny, loader, trainer

made_on_import = trainer("ddp_spawn")  # as every process makes it that imports this script

class Logging(Tiny):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

class Counting(Callback):
    steps = 0
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.steps += 1
    def on_fit_end(self, trainer, module):
        weight = module.layer.weight.tolist()
        note(f"epoch{trainer.current_epoch}-rank{trainer.global_rank}", json.dumps([weight, id(module)]))

def at_home(module):
    return module.layer.weight.tolist()

if __name__ == "__main__":
    module, counting = Logging(), Counting()
    saving = ModelCheckpoint(dirpath="saved", monitor="val_loss")
    tested = trainer(DDPSpawnStrategy(timeout=60.0), callbacks=[counting, saving], enable_checkpointing=True)
    seen = []
    for epochs in (1, 2):
        tested.max_epochs = epochs
        tested.fit(module, loader(), loader())
        assert not module.layer.weight.is_shared()
        metrics = {name: float(value) for name, value in tested.callback_metrics.items()}
        best = os.path.relpath(saving.best_model_path)
        assert os.path.isfile(best)
        seen.append([at_home(module), metrics, best, counting.steps, tested.current_epoch, tested.global_step])
        if epochs == 1:
            seen.append(tested.validate(module, loader(), verbose=False))
    note("home", json.dumps(seen))
"""


def test_results_come_home(tmp_path):
    """After a run the caller's objects hold rank 0's weights, metrics as numbers, best path, counters, attributes."""
    (tmp_path / "tmp").mkdir()
    # torch's compiler keeps a folder of its own, which is not asked about here
    ended = run(tmp_path, HOME, env={"TMPDIR": str(tmp_path / "tmp"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert ended.status == 0, ended
    assert not ended.left, ended
    assert not list((tmp_path / "tmp").iterdir()), "no temporary file is left"
    first, validated, second = json.loads(ended.note("home"))
    ranks = {(epoch, rank): json.loads(ended.note(f"epoch{epoch}-rank{rank}")) for epoch in (1, 2) for rank in (0, 1)}
    for epoch, home in ((1, first), (2, second)):
        weights, metrics, best, steps, current_epoch, global_step = home
        assert weights == ranks[epoch, 0][0] == ranks[epoch, 1][0], ended
        assert set(metrics) == {"loss", "val_loss"}
        assert best.startswith("saved/")
        assert steps == 5 * epoch
        assert (current_epoch, global_step) == (epoch, 5 * epoch)
    assert validated == [{"val_loss": pytest.approx(first[1]["val_loss"])}]
    assert second[1]["loss"] < first[1]["loss"], "the second run went on from the first"


REFUSED = """
import sys
from support.scripts import note
from support.tiny import Tiny, loader, trainer

def fit():
    class Local(Tiny):
        pass
    module = Local() if sys.argv[1] == "local class" else Tiny()
    if sys.argv[1] == "generator":
        module.stream = (number for number in range(3))
    tested.fit(module, loader())

note(__name__)
tested = trainer("ddp_spawn")
if __name__ == "__main__" or sys.argv[1] == "unguarded":
    fit()
"""


@pytest.mark.parametrize(
    ("what", "fact"), [("local class", "Local"), ("generator", "generator"), ("unguarded", "__name__ == '__main__'")]
)
def test_what_cannot_be_spawned(tmp_path, what, fact):
    """What cannot travel is refused before any process starts; a run that the import of the script starts, in them."""
    ended = run(tmp_path, REFUSED, what)
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert fact in ended.err, ended
    assert (tmp_path / "__mp_main__").exists() == (what == "unguarded"), ended
    if what == "unguarded":
        assert any(
            "InterlockError: this script starts a run while it is imported" in line for line in ended.err.split("\n")
        )
    else:
        assert ended.err.count("InvalidArgument: a spawned process needs module, loaders and callbacks") == 1, ended


BOTH = """
import os, sys
from support.tiny import Tiny, loader, trainer

if __name__ == "__main__":
    for strategy in sys.argv[1:]:
        name, _, devices = strategy.partition("-")
        trainer(name, int(devices or 2)).fit(Tiny(), loader())
"""


@pytest.mark.parametrize("order", [("ddp", "ddp_spawn"), ("ddp_spawn", "ddp")])
def test_two_ways_to_start_in_one_program(tmp_path, order):
    """A program that runs as several processes cannot spawn more of them for another run, and says so."""
    ended = run(tmp_path, BOTH, *order)
    assert ended.status == 1, ended
    assert not ended.left, ended
    assert "InvalidArgument: strategy 'ddp_spawn' starts new processes, but this program runs as several" in ended.err


def test_several_processes_after_one(tmp_path):
    """A program may spawn processes for a run after one that needed no others, whose group is given back."""
    ended = run(tmp_path, BOTH, "ddp-1", "ddp_spawn-2", "ddp-1", "ddp_spawn-2")
    assert ended.status == 0, ended
    assert not ended.left, ended

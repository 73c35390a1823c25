"""Two ranks search with each of the strategies that are named, and write down what each of them found.

Run as ``python searching_ranks.py FOLDER STRATEGY...``.
"""

import json
import random
import sys
from pathlib import Path

import torch
from support.hungry import Hungry, everything
from support.nets import quiet_trainer

from core.tuner import Tuner


def searches(strategy):
    """Return what this rank found with ``strategy``."""
    torch.manual_seed(5)
    random.seed(5)
    trainer = quiet_trainer(strategy=strategy, devices=2, limit_train_batches=2)
    module, found = Hungry(room=40, samples=200), {}
    before = everything(trainer, module)
    tuner = Tuner(trainer)
    found["power"] = tuner.scale_batch_size(module, init_val=8)
    if strategy == "ddp":
        found["again"] = tuner.scale_batch_size(module, init_val=8)
    sweep = tuner.lr_find(module, num_training=12, min_lr=1e-4, early_stop_threshold=None, update_attr=False)
    found["losses"] = sweep.results["loss"]
    module.batch_size = module.hparams["batch_size"] = 2
    found["clean"] = everything(trainer, module) == before
    if strategy != "fsdp":  # whose forward is an exchange
        lonely = Hungry(room=40, samples=200, lonely=1)
        found["lonely"] = tuner.scale_batch_size(lonely, init_val=8)
    module.batch_size = 32
    trainer.fit(module)
    found["steps"] = trainer.global_step
    return trainer.global_rank, found


if __name__ == "__main__":
    folder, *strategies = sys.argv[1:]
    results = {name: searches(name) for name in strategies}
    rank = next(iter(results.values()))[0]
    text = json.dumps({name: found for name, (_, found) in results.items()})
    Path(folder, f"rank{rank}.json").write_text(text)

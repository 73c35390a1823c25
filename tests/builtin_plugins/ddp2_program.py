"""What the process of one node does for the tests of ddp2; each writes what it found to a file of its own."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from rank_program import UNEVEN, Look, Noisy
from support.reference import GLOBAL_BATCH, Case, Net, by_hand, dataset, furthest, make_trainer
from torch.utils.data import DataLoader, Subset

from core import Callback, Trainer

CASES = (Case("sgd", 4, clip=0.5), Case("two", 3, clip=0.05, algorithm="value"), Case("groups", 8, 3), Case("two"))
__all__ = ["CASES", "GLOBAL_BATCH", "UNEVEN", "dataset"]


class Watched(Noisy):
    """Remembers how much its replicas were given, and raises in one of them if told to."""

    chunks: list[int] = []  # noqa: RUF012 - shared by the replicas on purpose
    fails = False

    def training_step(self, batch, batch_idx):
        self.chunks.append(len(batch[0]))
        if self.fails and batch_idx == 1 and threading.current_thread().name.startswith("replica-1"):
            raise ValueError("on purpose")
        return super().training_step(batch, batch_idx)


def make(epochs: int, *callbacks: Callback, case: Case | None = None) -> Trainer:
    """Return a Trainer for two nodes of two devices."""
    case = case or Case()
    return make_trainer(
        strategy="ddp2",
        devices=2,
        num_nodes=2,
        max_epochs=epochs,
        callbacks=list(callbacks),
        accumulate_grad_batches=case.accumulate,
        gradient_clip_val=case.clip,
        gradient_clip_algorithm=case.algorithm,
    )


class Prepared(Net):
    """Notes that it prepares data."""

    def __init__(self, on_each_node: bool) -> None:
        super().__init__()
        self.prepare_data_per_node, self.prepared = on_each_node, 0

    def prepare_data(self) -> None:
        self.prepared += 1


def prepared(on_each_node: bool) -> int:
    """Return how often data was prepared here."""
    module, trainer = Prepared(on_each_node), make(1)
    trainer.fit(module, DataLoader(dataset(1), batch_size=GLOBAL_BATCH // 2))
    trainer.end_run()
    return module.prepared


def trained(case: Case, folder: Path) -> float:
    """Train a case, saving between two epochs, and return how far from the loop by hand it ends."""

    class Save(Callback):
        def on_train_epoch_end(self, trainer, module):
            if trainer.current_epoch == 0 and case == CASES[-1]:
                trainer.save_checkpoint(folder / "epoch.ckpt")

    module, trainer = Net(case.optimizers), make(case.epochs, Save(), case=case)
    trainer.fit(module, DataLoader(dataset(case.batches), batch_size=GLOBAL_BATCH // 2))
    trainer.end_run()
    return furthest(dict(module.state_dict()), by_hand(case))


def main(action: str, folder: Path) -> None:
    """Train, go on from the checkpoint, or fail."""
    module = Watched()
    module.fails = action == "fail" and os.environ["RANK"] == "1"
    path = str(folder / "inside.ckpt")
    look = Look(path if action == "train" else None)
    trainer = make(3, look)
    data = dataset(5)
    trainer.fit(
        module,
        DataLoader(data, batch_size=GLOBAL_BATCH // 2, shuffle=True),
        DataLoader(Subset(data, range(UNEVEN)), batch_size=4),
        ckpt_path=path if action == "resume" else None,
    )
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    trainer.end_run()
    found = {"losses": look.losses, "metrics": metrics, "chunks": Watched.chunks}
    if action == "train":
        found["prepared"] = [prepared(True), prepared(False)]
        found["distances"] = {str(case): trained(case, folder) for case in CASES}
    (folder / f"{action}.{os.environ['RANK']}").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

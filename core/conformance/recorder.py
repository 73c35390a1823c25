"""What a run of the kit notes on each rank while it trains, written to one file per rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from core.callbacks import Callback
from core.conformance.cases import Job
from core.optim import state_bytes
from core.trainer import Trainer

MIDDLE = 4
"""The step after which a checkpoint is written inside an epoch."""
MIDDLE_FILE, EPOCH_FILE = "middle.ckpt", "epoch.ckpt"


def loop_ranks(trainer: Trainer) -> int:
    """Return how many ranks run the loop; a strategy may have more, which hold parts of the model and answer."""
    run = trainer._run
    assert run is not None, "called inside a run"
    return run.ranks.world_size


def rank_file(folder: Path, rank: int) -> Path:
    """Return where ``rank`` writes what it noted."""
    return folder / f"rank{rank}.pt"


class Recorder(Callback):
    """Notes samples, losses and parameters of every step, and what the rank holds."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder = job, str(folder)
        self.facts: dict[str, Any] = {}

    def on_train_start(self, trainer: Trainer, module: nn.Module) -> None:
        self.facts = {
            "pid": os.getpid(),
            "loop_ranks": loop_ranks(trainer),
            "launch": trainer.plan.launch.how,
            "first_step": trainer.global_step,
            "batches": [],
            "losses": [],
            "gradients": [],
            "steps": [],
            "skipped": [],
            "gradient_bytes": [],
        }

    def on_after_backward(self, trainer: Trainer, module: nn.Module) -> None:
        first = next(module.parameters()).grad
        self.facts["gradients"].append(None if first is None else _whole(first))

    def on_before_optimizer_step(self, trainer: Trainer, module: nn.Module, optimizer: Optimizer) -> None:
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        self.facts["gradient_bytes"].append(sum(_bytes(gradient) for gradient in gradients))

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        facts = self.facts
        facts["batches"].append((trainer.current_epoch, batch[2].tolist()))
        facts["losses"].append(float(outputs["loss"]))
        if trainer.global_step > facts["first_step"] + len(facts["steps"]):
            facts["steps"].append({name: _whole(p) for name, p in _net(module).named_parameters()})
            facts["skipped"].append(trainer.skipped_steps)

    def on_train_end(self, trainer: Trainer, module: nn.Module) -> None:
        facts = self.facts
        facts["observed"] = getattr(module, "observed", {})
        facts["state_bytes"] = sum(state_bytes(optimizer) for optimizer in trainer.optimizers)
        facts["parameter_bytes"] = sum(_bytes(p) for p in module.parameters())
        torch.save(facts, rank_file(Path(self.folder), trainer.global_rank))
        self.facts = {}  # what is written need not travel home


class Saver(Callback):
    """Writes a checkpoint inside an epoch, and one at the end of the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == MIDDLE:
            trainer.save_checkpoint(Path(self.folder, MIDDLE_FILE))

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        if trainer.current_epoch == 0:
            trainer.save_checkpoint(Path(self.folder, EPOCH_FILE))


def _net(module: nn.Module) -> nn.Module:
    return module.sequential_module  # type: ignore[return-value]  # a KitModule


def _whole(tensor: Tensor) -> Tensor:
    """Return a copy in host memory; of a tensor that is spread over ranks, the whole of it."""
    gather = getattr(tensor, "full_tensor", None)
    whole = gather() if callable(gather) else tensor
    return whole.detach().cpu().clone()


def _bytes(tensor: Tensor) -> int:
    local = getattr(tensor, "to_local", None)
    own = local() if callable(local) else tensor
    return own.numel() * own.element_size()

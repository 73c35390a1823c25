"""Small models, and the loop that a person would write for them by hand: what every strategy has to equal.

Everything here can be imported by name, so that spawned processes and scripts find it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from core import Module, Trainer

TESTS = Path(__file__).parents[1]
GLOBAL_BATCH = 8
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
"""Arguments of a Trainer that only trains."""
HALF = {"16-true": torch.float16, "bf16-true": torch.bfloat16, "64-true": torch.float64}
MIXED = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """One way to train, the same by hand and by the Trainer."""

    optimizers: str = "sgd"
    accumulate: int = 1
    batches: int = 10
    clip: float | None = None
    algorithm: str = "norm"
    precision: str = "32-true"
    epochs: int = 2

    def __str__(self) -> str:
        clip = f"{self.algorithm}{self.clip:g}" if self.clip else "unclipped"
        return f"{self.optimizers}-{self.batches}by{self.accumulate}-{clip}-{self.precision}"


class Net(Module):
    """Two networks side by side; ``kind`` says who optimizes them."""

    def __init__(self, kind: str = "sgd") -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.kind = kind
        self.first = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2))
        self.second = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        features, target = batch
        return nn.functional.mse_loss(self.first(features) * self.second(features), target)

    def configure_optimizers(self) -> Any:
        first, second = list(self.first.parameters()), list(self.second.parameters())
        if self.kind == "sgd":
            return torch.optim.SGD(first + second, lr=0.05, momentum=0.9)
        if self.kind == "adam":
            return torch.optim.Adam(first + second, lr=0.01)
        if self.kind == "adamw":
            return torch.optim.AdamW(first + second, lr=0.01, weight_decay=0.1)
        if self.kind == "two":
            return [torch.optim.SGD(first, lr=0.05, momentum=0.9), torch.optim.AdamW(second, lr=0.02)]
        if self.kind == "groups":
            slow = {"params": first, "lr": 0.003, "weight_decay": 0.2}
            return torch.optim.Adam([slow, {"params": second}], lr=0.02)
        raise AssertionError(self.kind)


def dataset(batches: int) -> TensorDataset:
    """Return features and targets for so many global batches."""
    generator = torch.Generator().manual_seed(11)
    size = batches * GLOBAL_BATCH
    return TensorDataset(torch.randn(size, 6, generator=generator), torch.randn(size, 2, generator=generator))


def by_hand(case: Case) -> dict[str, torch.Tensor]:
    """Train ``case`` in one process over the global batches, and return the parameters."""
    module = Net(case.optimizers)
    if case.precision in HALF:
        module.to(HALF[case.precision])
    configured = module.configure_optimizers()
    optimizers = configured if isinstance(configured, list) else [configured]
    scaler = torch.amp.GradScaler("cpu", enabled=case.precision == "16-mixed")
    batches = list(DataLoader(dataset(case.batches), batch_size=GLOBAL_BATCH))
    for _ in range(case.epochs):
        for start in range(0, case.batches, case.accumulate):
            window = batches[start : start + case.accumulate]
            for batch in window:
                if case.precision in HALF:
                    batch = [tensor.to(HALF[case.precision]) for tensor in batch]
                mixed = MIXED.get(case.precision)
                with torch.autocast("cpu", dtype=mixed) if mixed else nullcontext():
                    loss = module.training_step(batch, 0)
                scaler.scale(loss / len(window)).backward()
            _step_by_hand(case, optimizers, scaler)
    return dict(module.state_dict())


def _step_by_hand(case: Case, optimizers: list[torch.optim.Optimizer], scaler: torch.amp.GradScaler) -> None:
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if case.clip and case.algorithm == "norm":
            nn.utils.clip_grad_norm_(parameters, case.clip)
        elif case.clip:
            nn.utils.clip_grad_value_(parameters, case.clip)
        scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()


def with_trainer(case: Case, strategy: str, devices: int) -> dict[str, torch.Tensor]:
    """Train ``case`` with the Trainer, each rank on its part of the global batches, and return the parameters."""
    module = Net(case.optimizers)
    loader = DataLoader(dataset(case.batches), batch_size=GLOBAL_BATCH // devices)
    trainer = make_trainer(
        strategy=strategy,
        devices=devices,
        precision=case.precision,
        max_epochs=case.epochs,
        accumulate_grad_batches=case.accumulate,
        gradient_clip_val=case.clip,
        gradient_clip_algorithm=case.algorithm,
    )
    trainer.fit(module, loader)
    trainer.end_run()
    return {name: value.clone() for name, value in module.state_dict().items()}


def make_trainer(**arguments: Any) -> Trainer:
    """Return a Trainer on the cpu that only trains, but for what ``arguments`` say."""
    return Trainer(**{"accelerator": "cpu", "strategy": "single_device", "devices": 1, **QUIET, **arguments})


def furthest(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Return the largest absolute difference between tensors of the same names."""
    assert found.keys() == expected.keys()
    return max(float((found[name].double() - expected[name].double()).abs().max()) for name in expected)


def run_script(
    path: str | os.PathLike[str], *arguments: object, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a script of the tests, one thread in each process, and return what it said; it has to end well."""
    path_of_modules = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path_of_modules}
    done = subprocess.run(
        [sys.executable, os.fspath(path), *map(str, arguments)],
        env=environment,
        timeout=timeout,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, f"{path} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done

"""Models in stages and parts, jobs that train them on several processes, and the loop by hand they have to equal."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from support.reference import GLOBAL_BATCH, HALF, MIXED, QUIET, Case, dataset
from support.scripts import note
from torch import nn
from torch.utils.data import DataLoader

from core import Callback, Module, Trainer

QUIETER = {**QUIET, "enable_model_summary": False, "num_sanity_val_steps": 0}
SAVE_AT = 3
"""Batches of the first epoch after which the resume job saves."""


class First(nn.Module):
    """Leaves a file for each micro-batch that it has seen in training."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        folder = os.environ.get("JOB_FOLDER")
        if torch.is_grad_enabled() and folder:
            self.seen += 1
            Path(folder, f"seen{self.seen}").touch()
        return value


class Second(nn.Module):
    """Holds its first micro-batch back until the stage before has seen its second one."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        folder = os.environ.get("JOB_FOLDER")
        deadline = time.monotonic() + 20
        while torch.is_grad_enabled() and folder and not Path(folder, "seen2").exists():
            assert time.monotonic() < deadline, "the stage before waits for this one: nothing is in flight"
            time.sleep(0.01)
        return value


class Broken(nn.Module):
    """Fails at its third micro-batch in training."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.seen += torch.is_grad_enabled()
        if self.seen == 3:
            note("failing", os.getpid())
            if os.environ.get("BROKEN") == "killed":
                os.kill(os.getpid(), 9)
            raise ValueError("on purpose")
        return value


def set_values(module: nn.Module, seed: int = 3) -> nn.Module:
    """Give the parameters values that do not depend on the process."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return module


def optimizers_of(kind: str, parameters: list[nn.Parameter]) -> Any:
    """Return what ``configure_optimizers`` returns for ``kind``."""
    first, second = parameters[:3], parameters[3:]
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    if kind == "adamw":
        slow = {"params": first, "lr": 0.003, "weight_decay": 0.2}
        optimizer = torch.optim.AdamW([slow, {"params": second}], lr=0.02)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}
    if kind == "two":
        return [torch.optim.SGD(first, lr=0.1, momentum=0.9), torch.optim.Adam(second, lr=0.02)]
    raise AssertionError(kind)


class Staged(Module):
    """Seven layers, one after the other; ``extra`` puts others between them."""

    def __init__(self, kind: str = "sgd", extra: str = "") -> None:
        super().__init__()
        self.kind = kind
        self.sequential_module = nn.Sequential(
            nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 2)
        )
        set_values(self)
        layers = {"dropout": nn.Dropout(0.3), "flight": Second(), "broken": Broken()}
        if extra:
            self.sequential_module[3] = layers[extra]
        if extra == "flight":
            self.sequential_module[1] = First()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.sequential_module(features)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", nn.functional.mse_loss(self(batch[0]), batch[1]), sync_dist=True)
        self.log("samples", float(len(batch[0])), reduce_fx="sum", sync_dist=True)

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self(batch[0])

    def configure_callbacks(self) -> Callback:
        return Counter()

    def configure_optimizers(self) -> Any:
        return optimizers_of(self.kind, list(self.parameters()))


def trunk(dropout: float = 0.0) -> nn.Module:
    """Return the middle of :class:`Parted`."""
    return set_values(nn.Sequential(nn.Linear(9, 7), nn.Dropout(dropout), nn.Tanh()), 4)


def head() -> nn.Module:
    """Return the end of :class:`Parted`."""
    return set_values(nn.Linear(7, 2), 5)


def broken_head() -> nn.Module:
    """Return an end that fails."""
    return nn.Sequential(Broken(), head())


class Parted(Staged):
    """Three parts; ``how`` says where the last two live: here, or on the last two ranks of an RPC world."""

    def __init__(self, kind: str = "sgd", how: str = "here", dropout: float = 0.0) -> None:
        Module.__init__(self)
        self.kind, self.how, self.dropout = kind, how, dropout
        self.body = set_values(nn.Sequential(nn.Linear(6, 9), nn.Tanh()))
        if how == "here":
            self.trunk, self.head = trunk(dropout), head()

    def setup(self, stage: str) -> None:
        if self.how == "here" or hasattr(self, "trunk"):
            return
        if self.how == "modules":
            from torch.distributed.nn.api.remote_module import RemoteModule

            self.trunk = RemoteModule("worker1/cpu", trunk, args=(self.dropout,))
            self.head = RemoteModule("worker2/cpu", head)
        else:
            from builtin_plugins.rpc.parts import RemotePart

            first = "worker2" if self.how == "one worker" else "worker1"
            self.trunk = RemotePart(first, trunk, self.dropout)
            self.head = RemotePart("worker2", broken_head if self.how == "broken" else head)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(self.trunk(self.body(features)))


class Losses(Callback):
    """Keeps the loss of every batch; saves in the middle of the first epoch where it is told to."""

    def __init__(self, save_to: str | None = None) -> None:
        self.values: list[float] = []
        self._save_to = save_to

    def on_train_batch_end(self, trainer: Trainer, module: nn.Module, outputs: Any, batch: Any, index: int) -> None:
        self.values.append(outputs["loss"].item())
        if self._save_to and len(self.values) == SAVE_AT:
            trainer.save_checkpoint(self._save_to)


class Counter(Callback):
    """Counts epochs; a module brings it."""

    def __init__(self) -> None:
        self.epochs = 0

    def on_train_epoch_end(self, trainer: Trainer, module: nn.Module) -> None:
        self.epochs += 1


class Run(NamedTuple):
    """One case of a job: what the strategy and the model are given."""

    case: Case
    options: dict[str, Any]
    model: str = ""


TRAINED = {
    "four stages": Run(Case("sgd"), {"stages": 4, "micro_batches": 4}),
    "clipped": Run(Case("adamw", accumulate=3, clip=0.2), {"stages": 4, "balance": [1, 2, 2, 2]}),
    "two pipelines": Run(Case("two", accumulate=3, clip=0.1), {"stages": 2, "micro_batches": 2}),
    "by value": Run(Case("two", accumulate=2, clip=0.01, algorithm="value"), {"balance": [3, 4], "micro_batches": 3}),
    "double": Run(Case("sgd", precision="64-true"), {"stages": 2, "balance": "time"}),
    "bfloat16": Run(Case("sgd", precision="bf16-mixed", epochs=1), {"stages": 2}),
    "in flight": Run(Case("sgd", batches=1, epochs=1), {"balance": [3, 2, 1, 1], "micro_batches": 4}, "flight"),
}
"""On four ranks, a batch of 8 each time over all pipelines; the stages of one are measured."""
PARTED = {
    "clipped": Run(Case("adamw", accumulate=3, clip=0.2), {}, "parts"),
    "by value": Run(Case("two", accumulate=2, clip=0.01, algorithm="value"), {}, "parts"),
    "double": Run(Case("sgd", precision="64-true"), {}, "parts"),
    "bfloat16": Run(Case("sgd", precision="bf16-mixed", epochs=1), {}, "parts"),
    "modules": Run(Case("adamw", accumulate=3, clip=0.2), {}, "modules"),
}
"""On three ranks, of which one runs the loop."""
SHARED = {"clipped": Run(Case("two", accumulate=3, clip=0.2), {"main_ranks": 2}, "one worker")}
"""On three ranks, of which two run the loop."""


def by_hand(run: Run) -> dict[str, torch.Tensor]:
    """Train a case in one process over the global batches, and return the parameters."""
    case = run.case
    parted = run.model in ("parts", "modules", "one worker")
    module = Parted(case.optimizers) if parted else Staged(case.optimizers, run.model)
    half, mixed = HALF.get(case.precision), MIXED.get(case.precision)
    module.to(half) if half else None
    configured = module.configure_optimizers()
    schedulers = [configured["lr_scheduler"]] if isinstance(configured, dict) else []
    configured = configured["optimizer"] if isinstance(configured, dict) else configured
    optimizers = configured if isinstance(configured, list) else [configured]
    batches = list(DataLoader(dataset(case.batches), batch_size=GLOBAL_BATCH))
    for _ in range(case.epochs):
        for start in range(0, case.batches, case.accumulate):
            window = batches[start : start + case.accumulate]
            for batch in window:
                features, target = (tensor.to(half) if half else tensor for tensor in batch)
                with torch.autocast("cpu", dtype=mixed) if mixed else nullcontext():
                    loss = nn.functional.mse_loss(module(features), target)
                (loss / len(window)).backward()
            for optimizer in optimizers:
                parameters = [p for group in optimizer.param_groups for p in group["params"]]
                if case.clip and case.algorithm == "norm":
                    nn.utils.clip_grad_norm_(parameters, case.clip)
                elif case.clip:
                    nn.utils.clip_grad_value_(parameters, case.clip)
                optimizer.step()
                optimizer.zero_grad()
        for scheduler in schedulers:
            scheduler.step()
    return dict(module.state_dict())


def make_strategy(name: str, **options: Any) -> Any:
    """Return a configured instance of one of the strategies that cut a model."""
    from builtin_plugins.pipeline.strategy import PipelineStrategy
    from builtin_plugins.rpc.strategy import RPCStrategy
    from builtin_plugins.rpc_sequential.strategy import RPCSequentialStrategy

    kinds = {"pipeline": PipelineStrategy, "rpc": RPCStrategy, "rpc_sequential": RPCSequentialStrategy}
    return kinds[name](**options)


class Job(NamedTuple):
    """A program on several ranks."""

    strategy: str
    devices: int
    folder: Path

    def trainer(self, options: dict[str, Any], **settings: Any) -> Trainer:
        """Return a Trainer of this job."""
        strategy = make_strategy(self.strategy, **options)
        here = int(os.environ.get("LOCAL_WORLD_SIZE", self.devices))
        nodes = {"devices": here, "num_nodes": self.devices // here}
        return Trainer(accelerator="cpu", strategy=strategy, **{**QUIETER, **nodes, **settings})

    def train(self, name: str, run: Run) -> None:
        """Train one case and leave what each rank has."""
        case, replicas = run.case, self._replicas(run.options)
        losses = Losses()
        trainer = self.trainer(
            run.options,
            precision=case.precision,
            max_epochs=case.epochs,
            accumulate_grad_batches=case.accumulate,
            gradient_clip_val=case.clip,
            gradient_clip_algorithm=case.algorithm,
            callbacks=[losses],
        )
        module = self.module(case.optimizers, run.model)
        data = dataset(case.batches)
        trainer.fit(module, DataLoader(data, GLOBAL_BATCH // replicas), DataLoader(data, 5))
        told = {"step": trainer.global_step, "losses": losses.values, "metrics": _numbers(trainer.callback_metrics)}
        told["epochs"] = [callback.epochs for callback in trainer.callbacks if isinstance(callback, Counter)]
        (self.folder / f"{name}.{trainer.global_rank}.json").write_text(json.dumps(told))
        if self.strategy == "pipeline" or trainer.is_global_zero:
            torch.save(module.state_dict(), self.folder / f"{name}.{trainer.global_rank}.pt")
        trainer.save_checkpoint(self.folder / f"{name}.ckpt")

    def predict(self, options: dict[str, Any]) -> None:
        """Validate and predict, and leave what every rank was given."""
        trainer = self.trainer(options)
        module = self.module("sgd", "parts" if self.strategy == "rpc" else "")
        data = DataLoader(dataset(3), 8)
        metrics = trainer.validate(module, data, verbose=False)
        predictions = trainer.predict(module, data)
        torch.save({"metrics": metrics, "predictions": predictions}, self.folder / f"seen.{trainer.global_rank}.pt")

    def module(self, kind: str, model: str) -> Module:
        """Return the model that is trained."""
        module = Parted(kind, model) if self.strategy == "rpc" else Staged(kind, model)
        module.example_input_array = torch.ones(4, 6)
        return module

    def unbroken(self, options: dict[str, Any], ckpt_path: Path | None = None) -> None:
        """Train with dropout, save on the way, and leave the losses; with ``ckpt_path``, go on from there."""
        save_to = None if ckpt_path else os.fspath(self.folder / "middle.ckpt")
        losses = Losses(save_to)
        torch.manual_seed(7)
        trainer = self.trainer(options, max_epochs=2, callbacks=[losses])
        module = Parted("adamw", "parts", 0.3) if self.strategy == "rpc" else Staged("adamw", "dropout")
        trainer.fit(module, DataLoader(dataset(6), GLOBAL_BATCH, shuffle=True), ckpt_path=ckpt_path)
        name = "resumed" if ckpt_path else "unbroken"
        (self.folder / f"{name}.{trainer.global_rank}.json").write_text(json.dumps(losses.values))

    def take_over(self, options: dict[str, Any]) -> None:
        """Go on from what a single device has trained for one epoch."""
        trainer = self.trainer(options, max_epochs=2)
        module = self.module("adamw", "parts" if self.strategy == "rpc" else "")
        trainer.fit(module, DataLoader(dataset(6), GLOBAL_BATCH), ckpt_path=self.folder / "single.ckpt")
        if trainer.is_global_zero:
            torch.save(module.state_dict(), self.folder / "taken.pt")

    def _replicas(self, options: dict[str, Any]) -> int:
        balance = options.get("balance")
        stages = options.get("stages") or (len(balance) if isinstance(balance, list) else None)
        return options.get("main_ranks", 1) if self.strategy == "rpc" else self.devices // (stages or self.devices)


def _numbers(metrics: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}


def linger(job: Job) -> None:
    """Train well; then one rank that served does not come to the end of the program, for which others wait a little."""
    import core.parallel.children
    from builtin_plugins.rpc import world

    core.parallel.children.EXIT_WAIT = world.LEAVE_WAIT = 2.0
    job.trainer({}, max_epochs=1).fit(job.module("sgd", "parts"), DataLoader(dataset(2), GLOBAL_BATCH))
    if os.environ.get("RANK") == "1":
        note("lingering")
        time.sleep(100)


def main() -> None:
    """Run a job: ``strategy devices folder what``."""
    strategy, devices, folder, what = sys.argv[1:]
    os.environ["JOB_FOLDER"] = folder
    job = Job(strategy, int(devices), Path(folder))
    one = {} if strategy == "rpc" else {"stages": 4, "micro_batches": 2}
    if what == "absent" and os.environ.get("RANK") == "1":
        time.sleep(100)
    if what == "train":
        runs = PARTED if strategy == "rpc" else TRAINED
        for name, run in runs.items():
            job.train(name, run)
        job.predict(one)
        job.unbroken(one)
    elif what == "share":
        for name, run in SHARED.items():
            job.train(name, run)
    elif what == "resume":
        job.unbroken(one, job.folder / "middle.ckpt")
        job.take_over(one)
    elif what == "linger":
        linger(job)
    else:
        assert what in ("break", "absent")
        options = {"start_timeout": 8.0} if what == "absent" else {}
        trainer = job.trainer(options, max_epochs=2)
        trainer.fit(job.module("sgd", "broken"), DataLoader(dataset(6), GLOBAL_BATCH))


if __name__ == "__main__":
    main()

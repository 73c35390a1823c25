"""Strategies against the same thing written by hand with torch or fairscale: each has a loop of its own here.

Two gloo processes on this machine, in turn, in one run: time per step and its ratio, the optimizer state that each
rank holds, and the peak memory of each process. ``dp``, which has one process, comes first. The others take
steps of these: ``ddp_spawn`` and ``ddp_fork`` those of ``ddp``, ``ddp_sharded_spawn`` those of ``ddp_sharded``,
``ddp2`` those of ``dp`` inside ``ddp``; ``rpc`` sends what its module says.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
import torch.distributed as dist
from ddp import WORLD, ddp_by_hand, sharded_by_hand
from rich.console import Console
from rich.table import Table
from rpc_stages import rpc_sequential_by_hand, tick_for_server
from step_overhead import Ours, make_loader, make_net, quietly, train_by_hand
from timing import Clock, arguments, measure, show, summarize, write
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

from core import Callback, Trainer
from core.optim import state_bytes

STATE: dict[str, float] = {}
"""Bytes of optimizer state on this rank, by strategy."""
STAGES, MICRO_BATCHES = ((0, 2), (2, 5)), 4
"""Which layers each stage of the pipeline has, and how many parts of a batch are in flight."""


def zero_by_hand(clock: Clock, loader) -> None:
    net = DistributedDataParallel(make_net())
    train_by_hand(clock, loader, net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.01))


def fsdp_by_hand(clock: Clock, loader) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net = make_net()
    fully_shard(net, mesh=init_device_mesh("cpu", (WORLD,)))
    train_by_hand(clock, loader, net, torch.optim.SGD(net.parameters(), lr=0.01))


def pipeline_by_hand(clock: Clock, loader) -> None:
    rank = dist.get_rank()
    begin, end = STAGES[rank]
    layers = make_net()[begin:end]
    stage = PipelineStage(layers, rank, WORLD, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, nn.functional.cross_entropy)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    for x, y in loader:
        clock.tick()
        schedule.step(x) if rank == 0 else schedule.step(target=y)
        optimizer.step()
        optimizer.zero_grad()


def dp_by_hand(clock: Clock, loader) -> None:
    net = make_net()
    parameters = list(net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def replica(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(nn.functional.cross_entropy(net(x), y), parameters)

    with ThreadPoolExecutor(WORLD) as pool:
        for x, y in loader:
            clock.tick()
            parts = pool.map(replica, x.chunk(WORLD), y.chunk(WORLD))
            for parameter, *gradients in zip(parameters, *parts, strict=True):
                parameter.grad = torch.stack(gradients).mean(0)
            optimizer.step()
            optimizer.zero_grad()


class Tick(Callback):
    """Notes the steps of modules whose own step runs several times in one."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.clock.tick()


class InParts(Ours):
    """Its step runs once for each part of a batch."""

    @property
    def sequential_module(self) -> nn.Sequential:
        return self.net

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)


def pipeline(**options: object) -> object:
    from builtin_plugins.pipeline.strategy import PipelineStrategy

    balance = [end - begin for begin, end in STAGES]
    return PipelineStrategy(balance=balance, micro_batches=MICRO_BATCHES, **options)


def rpc_sequential(clock: Clock, loader) -> None:
    from builtin_plugins.rpc_sequential.strategy import RPCSequentialStrategy

    balance = [end - begin for begin, end in STAGES]
    strategy = RPCSequentialStrategy(balance=balance, micro_batches=MICRO_BATCHES)
    ours(clock, loader, strategy, InParts, (Tick(clock),))
    tick_for_server(clock)


class Weigh(Callback):
    """Notes the optimizer state that this rank holds at the end."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_train_end(self, trainer, module):
        STATE[self.name] = sum(state_bytes(optimizer) for optimizer in trainer.optimizers)


class WithMomentum(Ours):
    """Keeps state in its optimizer, so that there is something to shard."""

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.001)


def ours(clock: Clock, loader, strategy: object, module: type[Ours] = Ours, callbacks: tuple = ()) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            accelerator="cpu",
            strategy=strategy,
            devices=WORLD,
            max_epochs=1,
            barebones=True,
            callbacks=list(callbacks),
            use_distributed_sampler=False,
            default_root_dir=folder,
        ).fit(module(clock, log=False), loader)


def ours_in_parts(clock: Clock, loader, strategy: Callable[[], object]) -> None:
    ours(clock, loader, strategy(), InParts, (Tick(clock),))


BY_HAND: dict[str, Callable[[Clock, object], None]] = {
    "ddp": ddp_by_hand,
    "ddp_sharded": sharded_by_hand,
    "zero": zero_by_hand,
    "fsdp": fsdp_by_hand,
    "pipeline": pipeline_by_hand,
}
IN_PARTS = {"pipeline": pipeline}
"""Strategies that run the module's step once for each part of a batch."""


def rank_main(settings) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    clock = Clock(settings.warmup, settings.steps)
    loader = make_loader(clock.total, "batches")
    rows = []
    for strategy, by_hand in BY_HAND.items():
        if settings.only and strategy not in settings.only:
            continue
        base = f"{strategy} by hand"
        in_parts = IN_PARTS.get(strategy)
        run = partial(ours_in_parts, strategy=in_parts) if in_parts else partial(ours, strategy=strategy)
        contenders = {base: partial(by_hand, clock, loader), f"interlock {strategy}": partial(run, clock, loader)}
        found = summarize(measure({n: quietly(run) for n, run in contenders.items()}, clock, settings.rounds), base)
        if not in_parts:
            clock.reset()
            quietly(partial(ours, clock, loader, strategy, WithMomentum, (Weigh(strategy),)))()
        rows += found
        if dist.get_rank() == 0:
            show(f"two gloo processes, {settings.rounds} rounds of {settings.steps} steps", found, base)
    if not settings.only or "rpc_sequential" in settings.only:
        rows += _over_rpc(clock, loader, settings)
    _show_memory()
    if dist.get_rank() == 0:
        write(settings.json, rows, settings)
    dist.destroy_process_group()


def _over_rpc(clock: Clock, loader, settings) -> list[dict[str, float | str]]:
    base = "rpc_sequential by hand"
    contenders = {  # ours first: it enters the RPC world that both use
        "interlock rpc_sequential": quietly(partial(rpc_sequential, clock, loader)),
        base: quietly(partial(rpc_sequential_by_hand, clock, loader, STAGES, MICRO_BATCHES)),
    }
    found = summarize(measure(contenders, clock, settings.rounds), base)
    if dist.get_rank() == 0:
        show(f"two processes over RPC, {settings.rounds} rounds of {settings.steps} steps", found, base)
    return found


def _show_memory() -> None:
    """Print the state of each rank beside what one process alone would hold, and the peak memory of the processes."""
    whole = 2 * sum(parameter.numel() * 4 for parameter in make_net().parameters())
    table = Table(title=f"Adam's state, {whole} bytes in one process alone")
    for column in ("strategy", *(f"bytes on rank {rank}" for rank in range(WORLD)), "largest part of the whole"):
        table.add_column(column, justify="right")
    peaks = [None] * WORLD
    dist.all_gather_object(peaks, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    for strategy, mine in STATE.items():
        held: list = [None] * WORLD
        dist.all_gather_object(held, mine)
        table.add_row(strategy, *(f"{value:.0f}" for value in held), f"{max(held) / whole:.2f}")
    if dist.get_rank() == 0:
        Console(width=100).print(table)
        print(f"peak memory of the processes: {', '.join(f'{peak / 1024:.0f} MiB' for peak in peaks)}")


def one_process(settings) -> None:
    """Measure dp, whose devices one process drives."""
    torch.set_num_threads(1)
    clock = Clock(settings.warmup, settings.steps)
    loader = make_loader(clock.total, "batches")
    contenders = {
        "dp by hand": quietly(partial(dp_by_hand, clock, loader)),
        "interlock dp": quietly(partial(ours_in_parts, clock, loader, lambda: "dp")),
    }
    rows = summarize(measure(contenders, clock, settings.rounds), "dp by hand")
    show(f"one process, {settings.rounds} rounds of {settings.steps} steps", rows, "dp by hand")


def main() -> None:
    example = "python benchmarks/strategies.py --rounds 10 --only zero fsdp"
    settings = arguments(__doc__.splitlines()[0], example, rounds=5).parse_args()
    if "RANK" in os.environ:
        rank_main(settings)
        return
    if not settings.only or "dp" in settings.only:
        one_process(settings)
        if settings.only == ["dp"]:
            return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD)]
    raise SystemExit(subprocess.run([*command, *sys.argv], env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode)


if __name__ == "__main__":
    main()

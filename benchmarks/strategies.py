"""Strategies against the same thing written by hand with torch or fairscale: each has a loop of its own here.

Two gloo processes on this machine, in turn, in one run: time per step and its ratio, the optimizer state that each
rank holds, and the peak memory of each process. ``dp``, which has one process, and ``ddp2``, which takes each for a
node, come first. The others take steps of these: ``ddp_spawn`` and ``ddp_fork`` those of ``ddp``, and
``ddp_sharded_spawn`` those of ``ddp_sharded``.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from ddp import WORLD, compare, ddp_by_hand, sharded_by_hand
from memory import Peaks, show_peaks, with_peaks
from replicas_by_hand import replicas_by_hand
from rich.console import Console
from rich.table import Table
from rpc_stages import Stage, rpc_stages_by_hand, tick_for_server
from step_overhead import Ours, make_loader, make_net, quietly, train_by_hand
from timing import Clock, arguments, write
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


class WithRemotePart(Ours):
    """Its second stage is on the other rank."""

    def __init__(self, clock: Clock, log: bool) -> None:
        super().__init__(clock, log)
        self.net = self.net[slice(*STAGES[0])]

    def setup(self, stage):
        from builtin_plugins.rpc.parts import RemotePart

        self.net = nn.Sequential(self.net, RemotePart("worker1", Stage, *STAGES[1]))


def rpc(clock: Clock, loader) -> None:
    ours(clock, loader, "rpc", WithRemotePart)
    tick_for_server(clock)


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


def ours(
    clock: Clock, loader, strategy: object, module: type[Ours] = Ours, callbacks: tuple = (), nodes: int = 1
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            accelerator="cpu",
            strategy=strategy,
            devices=WORLD,
            num_nodes=nodes,
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


PEAKS = Peaks()


def weighed(title: str, base: str, contenders: dict[str, Callable[[], None]], clock: Clock, settings) -> list[dict]:
    """Measure and print, on rank 0, and note the peak of each contender."""
    noted = {name: PEAKS.noted(name, run) for name, run in contenders.items()}
    return compare(f"{title}, {settings.rounds} rounds of {settings.steps} steps", base, noted, clock, settings.rounds)


def rank_main(settings) -> None:
    """Measure the strategies with one process per device."""
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
        rows += weighed("two gloo processes", base, contenders, clock, settings)
        if not in_parts:
            clock.reset()
            quietly(partial(ours, clock, loader, strategy, WithMomentum, (Weigh(strategy),)))()
    for strategy, run, parts in (("rpc", rpc, 1), ("rpc_sequential", rpc_sequential, MICRO_BATCHES)):
        if settings.only and strategy not in settings.only:
            continue
        base = f"{strategy} by hand"
        contenders = {  # ours first: it enters the RPC world that both use
            f"interlock {strategy}": partial(run, clock, loader),
            base: partial(rpc_stages_by_hand, clock, loader, STAGES, parts),
        }
        rows += weighed("two processes over RPC", base, contenders, clock, settings)
    _show_state()
    peaks = PEAKS.by_rank()
    if dist.get_rank() == 0:
        show_peaks(peaks)
        write(settings.json, with_peaks(rows, peaks), settings)
    dist.destroy_process_group()


def _show_state() -> None:
    """Print the optimizer state of each rank beside what one process alone would hold."""
    whole = 2 * sum(parameter.numel() * 4 for parameter in make_net().parameters())
    table = Table(title=f"Adam's state, {whole} bytes in one process alone")
    for column in ("strategy", *(f"bytes on rank {rank}" for rank in range(WORLD)), "largest part of the whole"):
        table.add_column(column, justify="right")
    for strategy, mine in STATE.items():
        held: list = [None] * WORLD
        dist.all_gather_object(held, mine)
        table.add_row(strategy, *(f"{value:.0f}" for value in held), f"{max(held) / whole:.2f}")
    if STATE and dist.get_rank() == 0:
        Console(width=100).print(table)


def replicas_main(settings, strategy: str) -> None:
    """Measure dp, whose devices one process drives, or ddp2, of which this process is one node."""
    nodes = 1
    if strategy == "ddp2":
        dist.init_process_group("gloo")
        nodes = dist.get_world_size()
    clock = Clock(settings.warmup, settings.steps)
    loader = make_loader(clock.total, "batches")
    base = f"{strategy} by hand"
    contenders = {
        base: partial(replicas_by_hand, clock, loader, WORLD),
        f"interlock {strategy}": partial(ours, clock, loader, strategy, InParts, (Tick(clock),), nodes),
    }
    title = f"{nodes} process{'es' if nodes > 1 else ''} with {WORLD} replicas each"
    rows = weighed(title, base, contenders, clock, settings)
    peaks = PEAKS.by_rank()
    if os.environ.get("RANK", "0") == "0":
        show_peaks(peaks)
        path = Path(settings.json).with_suffix(f".{strategy}.json") if settings.json else None
        write(path and str(path), with_peaks(rows, peaks), settings)
    if dist.is_initialized():
        dist.destroy_process_group()


def two_nodes(arguments: list[str]) -> int:
    """Run this program twice, with what a launcher tells the only process of each of two nodes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"WORLD_SIZE": WORLD, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}
    told |= {"MASTER_PORT": port, "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": "lo"}
    started = []
    for node in range(WORLD):
        environment = {**told, "RANK": node, "GROUP_RANK": node}
        settings = {**os.environ, **{name: str(value) for name, value in environment.items()}}
        started.append(subprocess.Popen([sys.executable, *arguments], env=settings))
    return max(abs(process.wait()) for process in started)


def main() -> None:
    example = "python benchmarks/strategies.py --rounds 10 --only zero fsdp"
    settings = arguments(__doc__.splitlines()[0], example, rounds=5).parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if "RANK" in os.environ:
        replicas_main(settings, "ddp2") if os.environ["LOCAL_WORLD_SIZE"] == "1" else rank_main(settings)
        return
    wanted = set(settings.only or ["dp", "ddp2", "others"])
    if "dp" in wanted:
        replicas_main(settings, "dp")
    status = two_nodes(sys.argv) if "ddp2" in wanted else 0
    if not status and wanted - {"dp", "ddp2"}:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD)]
        status = subprocess.run([*command, *sys.argv], env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode
    raise SystemExit(status)


if __name__ == "__main__":
    main()

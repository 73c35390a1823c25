"""Each strategy of several processes against the same thing written by hand with torch or fairscale.

Two gloo processes on this machine, in turn, in one run: time per step and its ratio, the optimizer state that each
rank holds, and the peak memory of each process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from ddp import WORLD, ddp_by_hand, sharded_by_hand
from rich.console import Console
from rich.table import Table
from step_overhead import Ours, make_loader, make_net, quietly, train_by_hand
from timing import Clock, arguments, measure, show, summarize, write
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from core import Callback, Trainer
from core.optim import state_bytes

STATE: dict[str, float] = {}
"""Bytes of optimizer state on this rank, by strategy."""


def zero_by_hand(clock: Clock, loader) -> None:
    net = DistributedDataParallel(make_net())
    train_by_hand(clock, loader, net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.01))


def fsdp_by_hand(clock: Clock, loader) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net = make_net()
    fully_shard(net, mesh=init_device_mesh("cpu", (WORLD,)))
    train_by_hand(clock, loader, net, torch.optim.SGD(net.parameters(), lr=0.01))


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


def ours(clock: Clock, loader, strategy: str, module: type[Ours] = Ours, callbacks: tuple = ()) -> None:
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


BY_HAND: dict[str, Callable[[Clock, object], None]] = {
    "ddp": ddp_by_hand,
    "ddp_sharded": sharded_by_hand,
    "zero": zero_by_hand,
    "fsdp": fsdp_by_hand,
}


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
        contenders = {
            base: partial(by_hand, clock, loader),
            f"interlock {strategy}": partial(ours, clock, loader, strategy),
        }
        found = summarize(measure({n: quietly(run) for n, run in contenders.items()}, clock, settings.rounds), base)
        quietly(partial(ours, clock, loader, strategy, WithMomentum, (Weigh(strategy),)))()
        rows += found
        if dist.get_rank() == 0:
            show(f"two gloo processes, {settings.rounds} rounds of {settings.steps} steps", found, base)
    _show_memory()
    if dist.get_rank() == 0:
        write(settings.json, rows, settings)
    dist.destroy_process_group()


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


def main() -> None:
    example = "python benchmarks/strategies.py --rounds 10 --only zero fsdp"
    settings = arguments(__doc__.splitlines()[0], example, rounds=5).parse_args()
    if "RANK" in os.environ:
        rank_main(settings)
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD)]
    raise SystemExit(subprocess.run([*command, *sys.argv], env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode)


if __name__ == "__main__":
    main()

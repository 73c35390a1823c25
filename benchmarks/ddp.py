"""What a data-parallel step costs beside torch's or fairscale's own: two gloo processes on this machine.

Each strategy runs against the same thing written by hand, in the same pair of processes and in turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist
from step_overhead import Ours, make_loader, make_net, quietly, train_by_hand
from timing import Clock, arguments, measure, show, summarize, write
from torch.nn.parallel import DistributedDataParallel

from core import Trainer

WORLD = 2


def ddp_by_hand(clock: Clock, loader) -> None:
    net = DistributedDataParallel(make_net())
    train_by_hand(clock, loader, net, torch.optim.SGD(net.parameters(), lr=0.01))


def sharded_by_hand(clock: Clock, loader) -> None:
    from fairscale.nn.data_parallel import ShardedDataParallel
    from fairscale.optim import OSS

    net = make_net()
    optimizer = OSS(net.parameters(), optim=torch.optim.SGD, lr=0.01)
    train_by_hand(clock, loader, ShardedDataParallel(net, optimizer, reduce_buffer_size=0), optimizer)


def ours(clock: Clock, loader, strategy: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            accelerator="cpu",
            strategy=strategy,
            devices=WORLD,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            use_distributed_sampler=False,
            default_root_dir=folder,
        ).fit(Ours(clock, log=False), loader)


def compare(title: str, base: str, contenders: dict[str, Callable[[], None]], clock: Clock, rounds: int) -> list[dict]:
    rows = summarize(measure({n: quietly(run) for n, run in contenders.items()}, clock, rounds), base)
    if os.environ.get("RANK", "0") == "0":
        show(title, rows, base)
    return rows


def rank_main(settings) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    clock = Clock(settings.warmup, settings.steps)
    loader = make_loader(clock.total, "batches")
    data_parallel = {
        "DDP by hand": lambda: ddp_by_hand(clock, loader),
        "interlock ddp": lambda: ours(clock, loader, "ddp"),
    }
    sharded = {
        "fairscale by hand": lambda: sharded_by_hand(clock, loader),
        "interlock ddp_sharded": lambda: ours(clock, loader, "ddp_sharded"),
    }
    title = f"two gloo processes, {settings.rounds} rounds of {settings.steps} steps"
    rows = compare(title, "DDP by hand", data_parallel, clock, settings.rounds)
    rows += compare(title, "fairscale by hand", sharded, clock, settings.rounds)
    if dist.get_rank() == 0:
        write(settings.json, rows, settings)
    dist.destroy_process_group()


def main() -> None:
    settings = arguments(__doc__.splitlines()[0], "python benchmarks/ddp.py --rounds 20").parse_args()
    if "RANK" in os.environ:
        rank_main(settings)
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    raise SystemExit(subprocess.run([*command, *sys.argv], env=environment).returncode)


if __name__ == "__main__":
    main()

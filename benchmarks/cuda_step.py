"""What a training step costs on a GPU: a hand-written loop and Interlock, in float32 and with mixed precision.

The GPU is waited for only where the time is noted, so that steps overlap as they do in a real training.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from step_overhead import BASE, Ours, make_loader, make_net, quietly
from timing import Clock, arguments, measure, show, summarize, write
from torch import nn
from torch.utils.data import DataLoader

from core import Trainer


class DeviceClock(Clock):
    """Waits for the device before it notes the time."""

    def __init__(self, warmup: int, steps: int, device: str) -> None:
        super().__init__(warmup, steps)
        self._wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def tick(self) -> None:
        """Note that a step begins."""
        if self._count in (self.warmup, self.warmup + self.steps):
            self._wait()
        super().tick()


def by_hand(clock: Clock, loader: DataLoader, device: str, mixed: bool) -> None:
    net = make_net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    context = torch.autocast(device, dtype=torch.bfloat16) if mixed else nullcontext()
    for x, y in loader:
        clock.tick()
        with context:
            loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def interlock(clock: Clock, loader: DataLoader, device: str, mixed: bool) -> None:
    Trainer(
        accelerator=device,
        devices=1,
        precision="bf16-mixed" if mixed else None,
        max_epochs=1,
        logger=False,
        barebones=True,
    ).fit(Ours(clock, log=False), loader)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "python benchmarks/cuda_step.py --rounds 30", rounds=10, steps=1000)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: to try the benchmark itself")
    settings = parser.parse_args()
    clock = DeviceClock(settings.warmup, settings.steps, settings.device)
    loader = make_loader(clock.total, "batches")
    for mixed in (False, True):
        contenders = {
            BASE: quietly(lambda mixed=mixed: by_hand(clock, loader, settings.device, mixed)),
            "interlock": quietly(lambda mixed=mixed: interlock(clock, loader, settings.device, mixed)),
        }
        rows = summarize(measure(contenders, clock, settings.rounds), BASE)
        show(f"one training step on {settings.device}, {'bf16-mixed' if mixed else '32-true'}", rows, BASE)
        write(settings.json and f"{settings.json}.{'bf16' if mixed else '32'}", rows, settings)


if __name__ == "__main__":
    main()

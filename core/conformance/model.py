"""The module, the data and the optimizers that every run of the kit trains with, by the Trainer and by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from core.conformance.cases import OVERFLOWING, Case
from core.conformance.recorder import loop_ranks
from core.module import Module

FEATURES, HIDDEN, TARGETS = 6, 8, 3
MOST_SAMPLES = 4096
PURPOSE = "raised on purpose by the conformance kit"
RAISING_STEP = 3


class Net(nn.Sequential):
    """Two layers, the same wherever they are made."""

    def __init__(self, batch_norm: bool = False) -> None:
        middle = [nn.BatchNorm1d(HIDDEN)] if batch_norm else []
        super().__init__(nn.Linear(FEATURES, HIDDEN), *middle, nn.Tanh(), nn.Linear(HIDDEN, TARGETS))
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)


def loss_of(net: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
    """Return the loss; the factor keeps gradients of float16 in range when the loss is scaled by 65536."""
    outputs: Tensor = net(features)
    return (outputs - targets).square().mean() / 16


def make_optimizers(kind: str, net: nn.Sequential) -> list[Optimizer]:
    """Return the optimizers of a case over the parameters as they are now."""
    first, rest = list(net[0].parameters()), [p for layer in list(net)[1:] for p in layer.parameters()]
    if kind == "sgd":
        return [torch.optim.SGD(first + rest, lr=0.8, momentum=0.9)]
    if kind == "groups":
        groups = [{"params": first, "lr": 0.2}, {"params": rest, "lr": 0.5, "weight_decay": 0.1}]
        return [torch.optim.Adam(groups, lr=0.01, eps=0.1)]
    if kind == "two":
        return [torch.optim.SGD(first, lr=0.8, momentum=0.9), torch.optim.Adam(rest, lr=0.5, eps=0.1)]
    return [torch.optim.LBFGS(first + rest, lr=0.5, max_iter=2, tolerance_grad=0, tolerance_change=0)]


def samples_of(case: Case, count: int) -> TensorDataset:
    """Return features, targets and numbers of the first ``count`` samples.

    Where the case overflows, only one sample of one rank does.
    """
    generator = torch.Generator().manual_seed(9)
    features = torch.randn(MOST_SAMPLES, FEATURES, generator=generator)[:count].clone()
    targets = torch.randn(MOST_SAMPLES, TARGETS, generator=generator)[:count] + 1.5
    if case.overflow:
        targets[OVERFLOWING * count // case.micro_batches] = float("inf")
    return TensorDataset(features, targets, torch.arange(count))


class KitModule(Module):
    """The net as a module of the Trainer; it notes the number formats it meets, and can raise on the last rank."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.sequential_module = Net(case.sync_batchnorm)
        self.optimizers_kind = case.optimizers
        self.raises = case.during == "raise"
        self.automatic_optimization = not case.manual
        self.observed: dict[str, Any] = {}

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        features, targets, _ = batch
        if self.raises and self.global_step + 1 == RAISING_STEP and self.global_rank == loop_ranks(self.trainer) - 1:
            raise ValueError(PURPOSE)
        if not self.observed:
            self._observe(features)
        loss = loss_of(self.sequential_module, features, targets)
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def _observe(self, features: Tensor) -> None:
        weight = next(self.sequential_module.parameters())
        with torch.no_grad():
            outputs = nn.functional.linear(features, weight)  # what autocast, where it is on, makes of a layer
        self.observed.update(
            weights=str(weight.dtype), forward=str(outputs.dtype), device=str(weight.device), batch=str(features.device)
        )

    def configure_optimizers(self) -> list[Optimizer]:
        return make_optimizers(self.optimizers_kind, self.sequential_module)

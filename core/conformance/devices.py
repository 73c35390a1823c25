"""What an accelerator's tokens claim, tried on its device."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn


def try_token(token: str, device: torch.device) -> str:
    """Return why the claim ``token`` does not hold on ``device``; "" when it does."""
    claim, _, what = token.partition(".")
    if claim == "autocast":
        return _layer_runs(device, weights=torch.float32, autocast=getattr(torch, what))
    if claim == "dtype":
        return _layer_runs(device, weights=getattr(torch, what), autocast=None)
    if claim == "collective":
        return _exchanges(device, what)
    return _scales(device)


def _layer_runs(device: torch.device, *, weights: torch.dtype, autocast: torch.dtype | None) -> str:
    """Train one step of a layer; look at the number formats of its output and gradient."""
    layer = nn.Linear(4, 2).to(device, weights)
    features = torch.ones(3, 4, device=device, dtype=weights)
    if autocast is None:
        outputs = layer(features)
    else:
        with torch.autocast(device.type, dtype=autocast):
            outputs = layer(features)
    expected = autocast or weights
    if outputs.dtype != expected:
        return f"a layer returns {outputs.dtype}, not {expected}"
    outputs.float().square().mean().backward()
    gradient = layer.weight.grad
    if gradient is None or gradient.dtype != weights or not bool(gradient.isfinite().all()):
        return f"the gradient of a layer is {gradient}, not finite numbers in {weights}"
    before = layer.weight.detach().clone()
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    return "" if not torch.equal(before, layer.weight) else "an optimizer step changes nothing"


def _scales(device: torch.device) -> str:
    """Scale a loss, unscale the gradient, and step; then meet an infinite one."""
    weight = nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    for factor, expected in [(1.0, 0.5), (float("inf"), 0.5)]:
        optimizer.zero_grad()
        loss: Tensor = scaler.scale((weight * factor).sum())
        loss.backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        if not torch.equal(weight.detach().cpu(), torch.full((2,), expected)):
            return f"after a gradient of {factor:g} the weights are {weight.tolist()}, not {expected:g}"
    return "" if scaler.get_scale() == 512.0 else f"after an overflow the scale is {scaler.get_scale():g}, not 512"


def _exchanges(device: torch.device, backend: str) -> str:
    """Sum a tensor over a group of this process alone; the strategy's checks do it over several."""
    if dist.is_initialized():
        group = dist.new_group([dist.get_rank()], backend=backend, use_local_synchronization=True)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        group = None
    try:
        tensor = torch.ones(3, device=device)
        dist.all_reduce(tensor, group=group)
        return "" if tensor.tolist() == [1.0, 1.0, 1.0] else f"the sum over one rank of ones is {tensor.tolist()}"
    finally:
        dist.destroy_process_group(group)

"""Training on XLA devices: operations are recorded, and run when the step is marked as complete."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, ClassVar

import torch
import torch_xla
from torch import Tensor
from torch.optim import Optimizer
from torch_xla import runtime
from torch_xla.core import xla_model

from core.errors import PluginUnavailable
from core.plugins import Accelerator, hookimpl
from core.session import Ranks


class XLAAccelerator(Accelerator):
    """One XLA device, or the virtual one that stands for all of them.

    What a step does is only recorded until its end is marked: once in each window, after the optimizer, so that
    backward, clipping and update are compiled as one program. An evaluation step ends where the next batch comes.
    """

    inference_mode: ClassVar[bool] = False
    """The device's operations count versions of tensors, which those made in inference mode do not have."""

    @hookimpl
    def setup_device(self, ranks: Ranks) -> torch.device:
        # of several processes the runtime gives each its own; else it would give the one that a run picked before
        own = self.plan.world_size > 1
        device: torch.device = torch_xla.device() if own else torch_xla.device(self.device_index(ranks))
        # the device has random numbers of its own, which torch.manual_seed does not reach
        xla_model.set_rng_state(torch.initial_seed() % 2**32, str(device))
        _refuse_late(device)
        return device

    @hookimpl
    def transfer_batch(self, batch: Any, device: torch.device) -> Any:
        if not torch.is_grad_enabled():
            torch_xla.sync()
        return super().transfer_batch(batch, device)

    @hookimpl(wrapper=True)
    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Tensor] | None) -> Generator[None, None, None]:
        yield
        torch_xla.sync()

    @hookimpl(wrapper=True)
    def teardown(self) -> Generator[None, None, None]:
        yield
        torch_xla.sync(wait=True)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": xla_model.get_rng_state(str(self.device))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        xla_model.set_rng_state(state["rng"], str(self.device))


def _refuse_late(device: torch.device) -> None:
    """Refuse a device that backward passes cannot reach: torch counts them once, at the process's first backward."""
    runtime.global_runtime_device_count()  # opens the runtime, which under SPMD the virtual device alone does not
    probe = torch.zeros((), device=device, requires_grad=True)
    try:
        torch.autograd.grad(probe * 1.0, probe)
    except RuntimeError as error:
        reason = (
            "a backward pass ran in this process before the XLA devices were opened, and torch takes up no devices "
            "after its first; call torch_xla.runtime.global_runtime_device_count() at the start of the program, or "
            "train on xla in another process"
        )
        raise PluginUnavailable("accelerator 'xla'", [reason]) from error

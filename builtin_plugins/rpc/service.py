"""What a rank does for the others: it holds parts of the model and answers requests about them.

Requests run in threads of the RPC layer, while the rank's main thread waits for the end of the run, or goes on with
the script.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
from torch import Tensor, nn
from torch.distributed import rpc

from builtin_plugins.pipeline.averaging import average_gradients
from builtin_plugins.pipeline.layers import layer_tensors
from builtin_plugins.rpc.failures import Failure, is_echo
from builtin_plugins.rpc.shares import Share
from builtin_plugins.rpc.turns import TurnLostError, Turns
from core.data.nested import detach_to_host, map_tensors
from core.errors import InterlockError
from core.parallel.guard import report_failure
from core.plugins.binding import Hooks
from core.seed import get_rng_state, set_rng_state


class Part:
    """A module that lives here, and what is needed to run it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.turns = Turns()
        self.context: AbstractContextManager[Any] = nullcontext()
        self.context_of: Hooks | None = None


class Service:
    """The parts of this process and the answers to requests; one for all runs of the program."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._parts: dict[str, Part] = {}
        self._shares: dict[str, Share] = {}
        self._lock = threading.RLock()
        self._ready = threading.Event()
        self._running = False
        self._hooks: Hooks | None = None
        self._device = torch.device("cpu")
        self._timeout = 0.0
        self._alike: dist.ProcessGroup | None = None

    def begin(self, hooks: Hooks, device: torch.device, timeout: float, alike: dist.ProcessGroup | None = None) -> None:
        """Serve the next run.

        Args:
            hooks: this process's.
            device: where parts live.
            timeout: seconds that a request waits for another.
            alike: the ranks that hold the same stage of other pipelines.
        """
        self._ready.clear()
        self.error, self._running = None, True
        for part in self._parts.values():
            part.turns = Turns()
        self._hooks, self._device, self._timeout, self._alike = hooks, device, timeout, alike

    def ready(self) -> None:
        """Let requests in that run the model: the plugins of this process have their devices."""
        self._ready.set()

    def end(self) -> None:
        """Go on answering after the run, when a request that fails concerns only who made it."""
        self._running = False

    def failed(self, error: BaseException) -> None:
        """Remember the first error, tell the other ranks, and let no request wait for one that will not come."""
        if not self._running:
            return
        if not isinstance(error, TurnLostError) and not is_echo(error):
            self.error = self.error or error
            report_failure(error)
        for part in list(self._parts.values()):
            part.turns.break_off()

    def _part(self, name: str) -> Part:
        try:
            return self._parts[name]
        except KeyError:
            raise InterlockError(f"there is no part {name!r} here; parts: {', '.join(self._parts) or 'none'}") from None

    # ------------------------------------------------------------------ requests: parts come

    def create(self, name: str, make: Callable[..., nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a part, unless another rank had it made already; return how it looks."""
        with self._lock:
            if name not in self._parts:
                self._parts[name] = Part(make(*args, **kwargs).to(self._device))
        return self.looks(name)

    def adopt(self, name: str, reference: Any) -> Any:
        """Take the module behind a remote reference as a part; return how it looks."""
        self._parts[name] = Part(reference.local_value())
        return self.looks(name)

    def install(self, name: str, module: nn.Module) -> None:
        """Take a module that was sent here, in place of an earlier one of that name."""
        self._parts[name] = Part(module.to(self._device))

    def looks(self, name: str) -> tuple[list[tuple[str, bool]], list[tuple[str, torch.Size, torch.dtype, bool | None]]]:
        """Return a part's modules (name, whether in training) and tensors (name, size, type, gradient or a buffer)."""
        module = self._part(name).module
        modules = [(inner, part.training) for inner, part in module.named_modules()]
        tensors = [
            (inner, tensor.shape, tensor.dtype, tensor.requires_grad if isinstance(tensor, nn.Parameter) else None)
            for inner, tensor in layer_tensors(module).items()
        ]
        return modules, tensors

    # ------------------------------------------------------------------ requests: parts work

    def forward(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], learns: bool, number: int | None
    ) -> Any:
        """Run a part; remote references among ``args`` stand for what other ranks still compute."""
        if not self._ready.wait(self._timeout):
            raise InterlockError(f"part {name!r} was called before this rank was ready for the run")
        part = self._part(name)
        with torch.set_grad_enabled(learns):
            given = [arg.to_here(self._timeout) if isinstance(arg, rpc.PyRRef) else arg for arg in args]
            if any(isinstance(arg, Failure) for arg in given):
                raise TurnLostError("the part before this one has failed")
            with part.turns.turn(number, self._timeout), self._context(part):
                moved = map_tensors((tuple(given), kwargs), lambda tensor: tensor.to(self._device))
                returned = part.module(*moved[0], **moved[1])
                return map_tensors(returned, lambda tensor: tensor.cpu())

    def _context(self, part: Part) -> AbstractContextManager[Any]:
        """Return the precision's context; each part has its own, since parts run in threads of their own."""
        assert self._hooks is not None, "a run has begun"
        if part.context_of is not self._hooks:
            part.context = self._hooks.forward_context()
            part.context_of = self._hooks
        return part.context

    def flags(self, name: str, training: Sequence[bool], learning: Mapping[str, bool]) -> None:
        """Set the training mode of each inner module, and which parameters are trained."""
        module = self._part(name).module
        for inner, mode in zip(module.modules(), training, strict=True):
            inner.training = mode
        for inner_name, parameter in module.named_parameters():
            parameter.requires_grad_(learning.get(inner_name, parameter.requires_grad))

    def to_type(self, name: str, dtype: torch.dtype) -> None:
        """Change the type of a part's floating-point tensors."""
        self._part(name).module.to(dtype)

    def commit(self, context: int, scale: float) -> None:
        """Add the gradients of a backward to the parameters."""
        with self._lock:  # several ranks may run the loop
            commit(context, scale)

    def average(self, name: str) -> None:
        """Average a part's gradients with the ranks that hold the same stage; all of them are asked."""
        parameters = [p for p in self._part(name).module.parameters() if p.requires_grad]
        average_gradients(parameters, self._alike, self._device)

    # ------------------------------------------------------------------ requests: optimizers

    def share(self, key: str, kind: type[Any], groups: list[dict[str, Any]], defaults: dict[str, Any]) -> None:
        """Make this rank's share of an optimizer; parameters are given as (part, name)."""
        self._shares[key] = Share(
            kind, groups, defaults, lambda place: layer_tensors(self._part(place[0]).module)[place[1]]
        )

    def square_sum(self, key: str) -> float:
        """Return the sum of the squares of the gradients in a share."""
        return self._shares[key].square_sum()

    def step(self, key: str, settings: list[dict[str, Any]], scale: float, limit: float | None) -> None:
        """Clip and update the parameters of a share, then drop their gradients."""
        self._shares[key].step(settings, scale, limit)

    # ------------------------------------------------------------------ requests: state

    def state(self, name: str) -> dict[str, Any]:
        """Return a part's state in host memory."""
        return detach_to_host(dict(self._part(name).module.state_dict()))  # type: ignore[no-any-return]

    def load(self, name: str, state: dict[str, Any]) -> None:
        """Load a part's state."""
        self._part(name).module.load_state_dict(state)

    def share_state(self, key: str) -> dict[int, Any]:
        """Return the optimizer state of a share by the numbers of its parameters."""
        return self._shares[key].state()

    def load_share(self, key: str, state: Mapping[int, Any]) -> None:
        """Load the optimizer state of a share."""
        self._shares[key].load(state)

    def random_state(self) -> dict[str, Any]:
        """Return the state of this process's random numbers."""
        return get_rng_state()

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Go on with these random numbers."""
        set_rng_state(state)


def commit(context: int, scale: float) -> None:
    """Add this process's gradients of a distributed backward, times ``scale``, to its parameters."""
    gradients: dict[Tensor, Tensor] = dist_autograd.get_gradients(context)
    for parameter, gradient in gradients.items():
        scaled = gradient if scale == 1.0 else gradient * scale
        parameter.grad = scaled if parameter.grad is None else parameter.grad.add_(scaled)


_service = Service()


def service() -> Service:
    """Return the service of this process."""
    return _service


def request(what: str, *arguments: Any) -> Any:
    """Answer one request of another rank; a failure of it is the run's failure.

    A failure is an answer too: torch would print what is raised here, also where it only follows from something else.
    """
    try:
        return getattr(_service, what)(*arguments)
    except BaseException as error:
        _service.failed(error)
        return Failure.of(error)

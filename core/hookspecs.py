"""The hooks: where a run hands over to its plugins.

Each hook has exactly one owner, the plugin of the kind named at the end of its text; plugins of the other
kinds named there may wrap it with ``@hookimpl(wrapper=True)``. The table in :mod:`core.hooktable` is the
same statement for machines. An implementation may take fewer arguments than the hook, never others.

The calls of one step, in this order and at no other place:

* each micro-batch: ``transfer_batch``, the module's step inside ``forward_context`` (and inside
  ``skip_gradient_sync``, but for the last micro-batch of a window), the loss divided by the window's real
  size, ``backward``;
* at the end of each window, also the last partial one of an epoch: ``unscale_gradients`` once,
  ``clip_gradients``, ``optimizer_step`` unless the gradients were not finite, then the schedulers if it
  stepped, then the gradients are set to None.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import pluggy

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from core.session import Ranks

hookspec = pluggy.HookspecMarker("interlock")
hookimpl = pluggy.HookimplMarker("interlock")

T = TypeVar("T")
ReduceOp = Literal["sum", "mean", "min", "max"]


class WrappedModel(NamedTuple):
    """What ``wrap_model`` returns: the callable that runs a training step, and the optimizers to step.

    ``evaluation`` is the callable for evaluation steps, for strategies whose wrapper has to see those too; None
    runs the module's own step, without the wrapper. ``evaluation_exchanges`` says that ranks exchange tensors inside
    such a step, so that each of them has to run as many.
    """

    module: nn.Module
    optimizers: list[Optimizer]
    evaluation: nn.Module | None = None
    evaluation_exchanges: bool = False


class Shard(NamedTuple):
    """Which part of the data this process reads: part ``rank`` of ``num_replicas`` equal ones.

    ``shared`` says that other processes read the same part and need the same batches: its order must then not
    depend on the random state of one process.
    """

    rank: int = 0
    num_replicas: int = 1
    shared: bool = False


@hookspec(firstresult=True)
def launch(run: Callable[[Ranks], T]) -> T:
    """Start the processes of a run and call ``run`` in each; called once per run, in the process of the caller.

    :param run: takes the ranks of its process and returns the run's result; it can be pickled. ``run.module`` is the
        user's module, for strategies that refuse some before any process starts.
    :returns: the result of ``run`` on global rank 0.
    :raises RankFailed: when a process of the run fails, is killed or never starts.

    One owner: the strategy. A single-process strategy returns ``run(Ranks())``.
    """


@hookspec(firstresult=True)
def setup_device(ranks: Ranks) -> torch.device:
    """Make this process's device ready; called once per process and run, before the model moves.

    :param ranks: which process this is.
    :returns: the device that the model and the batches of this process go to.

    One owner: the accelerator. The strategy may wrap it, to form its process group once the device is known.
    """


@hookspec(firstresult=True)
def wrap_model(module: nn.Module, make_optimizers: Callable[[], list[Optimizer]]) -> WrappedModel:
    """Move the module to the device and wrap it; called once per run, on every rank.

    :param module: calling it runs the current step of the user's module, its only child, so that wrappers which
        act in ``forward`` work.
    :param make_optimizers: builds the user's optimizers from the parameters as they are when it is called, at
        most once; it returns an empty list in runs that do not train. In those that train it is a
        :class:`core.optim.OptimizerMaker`, with which a wrapper may change the optimizers before the owner gets them.
    :returns: the callable module, and one optimizer for each of ``make_optimizers()``, in its order.

    One owner: the strategy. The accelerator and the precision may wrap it.
    """


@hookspec(firstresult=True)
def shard_data() -> Shard:
    """Say which part of the data this process reads; called once per loader, on every rank.

    One owner: the strategy. A single-process strategy returns ``Shard(0, 1)``.
    """


@hookspec(firstresult=True)
def transfer_batch(batch: Any, device: torch.device) -> Any:
    """Move one batch to ``device``; called before every step.

    :param batch: whatever the loader gave; tensors may be nested in dicts, lists, tuples and dataclasses.
    :returns: the same structure on ``device``.

    One owner: the accelerator. The precision may wrap it, to change floating-point inputs, and so may the strategy.
    """


@hookspec(firstresult=True)
def forward_context() -> AbstractContextManager[Any]:
    """Return the context that forward and loss run in; called once per run, entered at every step.

    :returns: a context manager that can be entered again and again.

    One owner: the precision.
    """


@hookspec(firstresult=True)
def skip_gradient_sync(module: nn.Module) -> AbstractContextManager[Any]:
    """Return a context in which backward leaves gradients unexchanged; called for each micro-batch but a window's last.

    :param module: what ``wrap_model`` returned.

    One owner: the strategy. Where nothing is exchanged it returns a context that does nothing.
    """


@hookspec(firstresult=True)
def backward(loss: Tensor) -> None:
    """Compute gradients; called once per micro-batch.

    :param loss: a scalar, already divided by the real size of the accumulation window.

    One owner: the strategy. The precision may wrap it, to scale the loss: a wrapper cannot change arguments, but a
    hook that it registers on ``loss`` changes the gradient that backward starts with.
    """


@hookspec(firstresult=True)
def unscale_gradients(optimizers: list[Optimizer]) -> bool:
    """Undo loss scaling in place; called once per window, before clipping, with the optimizers about to step.

    :returns: False when a gradient is not finite on any rank; then none of them steps, on any rank.

    One owner: the precision. Without loss scaling it returns True and touches nothing.
    """


@hookspec(firstresult=True)
def clip_gradients(module: nn.Module, optimizer: Optimizer, value: float, algorithm: Literal["norm", "value"]) -> None:
    """Clip the gradients of ``optimizer`` in place; called once per window, only when clipping was asked for.

    :param value: the largest global norm over all ranks' parameters, or the largest absolute value.

    One owner: the strategy. The precision may wrap it.
    """


@hookspec(firstresult=True)
def optimizer_step(optimizer: Optimizer, closure: Callable[[], Tensor] | None) -> None:
    """Update the parameters; called once per optimizer and window.

    :param closure: None, but for optimizers that need one: it then runs forward and backward again.

    One owner: the strategy. The accelerator and the precision may wrap it.
    """


@hookspec(firstresult=True)
def reduce(tensor: Tensor, op: ReduceOp) -> Tensor:
    """Combine a tensor across ranks; called on every rank, whenever a value must agree.

    :param tensor: any shape, on this process's device; not modified. Integers are averaged as float64.
    :param op: ``"sum"``, ``"mean"``, ``"min"`` or ``"max"``.
    :returns: the same shape, equal on all ranks.

    One owner: the strategy. A single-process strategy returns ``tensor`` as it is.
    """


@hookspec(firstresult=True)
def broadcast(value: Any) -> Any:
    """Give every rank what rank 0 has; called on every rank.

    :param value: anything that can be pickled; only rank 0's counts.

    One owner: the strategy.
    """


@hookspec(firstresult=True)
def barrier(name: str, timeout: float | None) -> None:
    """Wait until every rank is here; called on every rank.

    :param name: what the ranks meet for; it stands in the error.
    :param timeout: seconds to wait; None is the strategy's default.
    :raises WaitTimeout: naming the meeting point and the ranks that did not come.

    One owner: the strategy. It returns at once where there is one process.
    """


@hookspec(firstresult=True)
def gather_state(module: nn.Module, optimizers: list[Optimizer]) -> dict[str, Any] | None:
    """Collect the full state for a checkpoint; called on every rank.

    :param module: the user's module, unwrapped.
    :returns: on global rank 0 ``{"state_dict": ..., "optimizer_states": [...]}`` in torch's plain layout; other
        ranks may return None.

    One owner: the strategy.
    """


@hookspec(firstresult=True)
def restore_state(module: nn.Module, optimizers: list[Optimizer], state: dict[str, Any]) -> None:
    """Load what ``gather_state`` of this or another strategy returned; called on every rank.

    :param state: the full state, in host memory; ``"optimizer_states"`` is missing when only weights are loaded.

    One owner: the strategy.
    """


@hookspec(firstresult=True)
def conclude(outcome: T) -> T:
    """End this process's part of a run; called once per process and run, when its work is done.

    :param outcome: what the work came to on this rank; it can be pickled. A rank that serves (see
        :class:`core.session.Ranks`) comes here as soon as its device is ready, with None, and stays until the ranks
        that run the loop are done.
    :returns: ``outcome``; on a rank that serves, that of rank 0.

    One owner: the strategy. It is where a strategy that keeps parts of the model elsewhere brings them back into the
    user's module. Where every rank holds the whole model it returns ``outcome``.
    """


@hookspec(firstresult=True)
def teardown() -> None:
    """Give back what the run holds: process groups, caches; called once per process and run, also after an error.

    One owner: the strategy. The accelerator may wrap it.
    """

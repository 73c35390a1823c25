"""Find the largest batch size that fits into memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from core.arguments import whole
from core.callbacks.moments import say
from core.data.combined import CombinedLoader
from core.data.stream import Micro
from core.errors import InterlockError, InvalidArgument
from core.loops.evaluation import EvaluationLoop
from core.loops.run import Run
from core.loops.training import TrainingLoop
from core.optim import needs_closure
from core.tuner.holders import need_holders, write_all
from core.tuner.memory import give_back, is_out_of_memory
from core.tuner.remember import Remembered
from core.tuner.trial import hide, take_steps
from core.userhooks import overridden

MEETING_TIMEOUT = 120.0
"""Seconds that a rank whose trial is over waits for the others: one that hangs in an exchange ends the search."""

KINDS = {"fit": "train", "validate": "validation", "test": "test", "predict": "predict"}


def largest(fits: Callable[[int], bool], mode: str, start: int, max_trials: int, most: int | None = None) -> int:
    """Return the largest size that was tried and fits.

    Sizes are doubled from ``start`` on until one does not fit; ``"binsearch"`` then halves the distance between the
    largest that fits and the smallest that does not, until nothing is between them. Where ``start`` itself does not
    fit, sizes are halved first.

    Args:
        fits: tries a size.
        mode: ``"power"`` or ``"binsearch"``.
        start: the first size.
        max_trials: how many sizes are tried at most.
        most: the largest size that makes a difference.

    Raises:
        InterlockError: when none fits.
    """
    size = start if most is None else min(start, most)
    good, bad, trials = 0, 0, 0
    while trials < max_trials and not (good and bad) and not (good and good == most):
        trials += 1
        if fits(size):
            good = size
            if bad:
                break
            size = size * 2 if most is None else min(size * 2, most)
        else:
            bad = size
            if good:
                break
            if size == 1:
                raise InterlockError("not even a batch size of 1 fits into memory")
            size //= 2
    if not good:
        raise InterlockError(f"no batch size fits into memory, down to {bad} in {trials} trials")
    while mode == "binsearch" and bad and trials < max_trials and bad - good > 1:
        trials += 1
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good


@dataclass
class BatchSizeSearch:
    """Tries batch sizes in a run; every rank runs it, and all come to the same size.

    Args:
        name: the attribute that the loader's author reads the batch size from.
        mode, start, max_trials: see :func:`largest`.
        steps: steps per trial.
        method: what is tried: ``"fit"``, ``"validate"``, ``"test"`` or ``"predict"``.
        max_val: no larger size is tried.
        margin: the part that is taken off what ``"binsearch"`` found, since memory that just suffices may not later.
    """

    name: str
    mode: str
    steps: int
    start: int
    max_trials: int
    method: str = "fit"
    max_val: int | None = None
    margin: float = 0.0

    def __post_init__(self) -> None:
        if self.max_val is not None:
            whole("max_val", self.max_val, least=1)
        if not 0.0 <= self.margin < 1.0:
            raise InvalidArgument(f"margin={self.margin} must be from 0.0 to below 1.0")

    def __call__(self, run: Run) -> int:
        """Search."""
        hide(run)
        self._holders = need_holders((self.name,), run.module, run.data.datamodule, "scale_batch_size")
        self._load(run, self.start)
        most = self._agreed_most(run)
        if self.max_val is not None:
            most = self.max_val if most is None else min(most, self.max_val)
        size = largest(lambda size: self._fits(run, size), self.mode, self.start, self.max_trials, most)
        return max(1, int(size * (1 - self.margin))) if self.mode == "binsearch" else size

    def _load(self, run: Run, size: int) -> Any:
        """Set the batch size and return the loaders that are made with it."""
        write_all(self._holders, size)
        loaders = [run.data.training()] if self.method == "fit" else run.data.evaluation(KINDS[self.method])
        for loader in loaders:
            for one in loader.flattened if isinstance(loader, CombinedLoader) else [loader]:
                if isinstance(one, DataLoader) and one.batch_size is not None and one.batch_size != size:
                    raise InvalidArgument(
                        f"{self._holders[0].where} is {size}, but the loader has a batch size of {one.batch_size}\n"
                        f"  hint: let its author read {self.name!r} whenever a loader is made"
                    )
        self._loaders = loaders
        return loaders

    def _agreed_most(self, run: Run) -> int | None:
        """Return the size of the smallest rank's data, None where a loader does not say."""
        sizes = []
        for loader in self._loaders:
            for one in loader.flattened if isinstance(loader, CombinedLoader) else [loader]:
                sizes.append(_samples(one))
        own = -1 if None in sizes or not sizes else max(size for size in sizes if size is not None)
        shortest = int(run.hooks.reduce(torch.tensor([own], device=run.device), "min"))
        return shortest if shortest > 0 else None

    def _fits(self, run: Run, size: int) -> bool:
        before = Remembered()
        for plugin in run.plugins.values():
            before.attributes(plugin)
        problem = self._try(run, size)
        before.restore()  # an interrupted step leaves a loss scaler in the middle of its work
        for parameter in run.module.parameters():
            parameter.grad = None
        give_back(run.device, whole=bool(problem))
        say(run.trainer, f"batch size {size}: {problem or 'fits'}")
        return not problem

    def _try(self, run: Run, size: int) -> str:
        """Return "" if all steps can be taken on all ranks, else what went wrong."""
        try:
            loaders = self._load(run, size)
            if self.method == "fit":
                one = _step_by_step if _may_fail_alone(run) else None
                take_steps(run, loaders[0], self.steps, one=one)
            else:
                self._evaluate(run, loaders)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            text = "out of memory"
        else:
            text = ""
        if agreed(run, bool(text)):
            return text or "out of memory on another rank"
        return ""

    def _evaluate(self, run: Run, loaders: list[Any]) -> None:
        loop = run.evaluation = EvaluationLoop(run, loaders, self.steps, KINDS[self.method])  # type: ignore[arg-type]
        shortest = min((total for total in loop.totals if total is not None), default=self.steps)
        if shortest == 0:
            raise InterlockError("a loader gives no batch, so there is nothing to try")
        for _ in range(-(-self.steps // shortest)):
            loop.run_once()


def agreed(run: Run, failed: bool) -> bool:
    """Tell whether any rank failed; every rank calls it.

    Raises:
        WaitTimeout: when another rank does not come, since it waits for this one in an exchange.
    """
    if run.ranks.world_size == 1:
        return failed
    run.hooks.barrier("batch size trial", MEETING_TIMEOUT)
    return bool(run.hooks.reduce(torch.tensor([int(failed)], device=run.device), "max"))


def _may_fail_alone(run: Run) -> bool:
    """Tell whether a rank can run out of memory without leaving the others in an exchange.

    It can where neither forward nor backward has to exchange anything: the ranks then meet before they step.
    """
    if run.wrapped is None or run.wrapped.evaluation_exchanges:
        return False
    plain = overridden(run.module, "optimizer_step") is None and getattr(run.module, "automatic_optimization", True)
    closures = any(needs_closure(optimizer) for optimizer in run.setup.optimizers)
    skips = run.plan.provides("grad_sync.skip") and run.hooks.changes("skip_gradient_sync")
    return bool(run.ranks.world_size > 1 and plain and not closures and skips)


def _step_by_step(loop: TrainingLoop, micro: Micro, index: int) -> bool:
    """Run forward and backward without an exchange, meet the other ranks, then step.

    Raises:
        MemoryError: on every rank, when any rank ran out of memory.
    """
    try:
        whole = loop.step.micro_batch(Micro(micro.batch, 1, False, micro.ends_epoch), index)
        failed = False
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        whole, failed = False, True
    if agreed(loop.run, failed):
        raise MemoryError
    loop.step.end_window()
    return whole


def _samples(loader: Any) -> int | None:
    """Return how many samples a pass over ``loader`` has on this rank, None where it does not say."""
    try:
        return len(loader.sampler)
    except (AttributeError, TypeError):
        return None

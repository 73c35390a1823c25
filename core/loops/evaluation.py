"""The evaluation loop: eval mode, no gradients, and everything as it was afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from core.arguments import batches_within
from core.data.sharding import set_epoch
from core.data.stream import length_of, read
from core.errors import InterlockError
from core.loops.run import Run, takes, takes_index
from core.metrics.recording import recording
from core.seed import get_rng_state, set_rng_state

Kind = Literal["validation", "test", "predict"]
Transfer = Callable[[Any, torch.device], Any]


class Outcome(NamedTuple):
    """What an evaluation came to: metrics of each loader, and what ``predict_step`` returned, loader by loader."""

    metrics: list[dict[str, float]]
    predictions: list[list[Any]]


class EvaluationLoop:
    """Runs ``validation_step``, ``test_step`` or ``predict_step`` over loaders.

    Args:
        run: the run it belongs to.
        loaders: this rank's loaders.
        limit: batches of each loader, or a fraction of it.
        kind: which step, and which hooks.
        keep: whether to keep what the steps return.
    """

    def __init__(
        self, run: Run, loaders: Sequence[Any], limit: int | float, kind: Kind = "validation", keep: bool = False
    ) -> None:
        self.run, self.kind, self._keep, self._limit = run, kind, keep, limit
        self.use_loaders(loaders)
        self.results = run.results(on_step=False, on_epoch=True, in_step=False)
        own = getattr(run.module, f"{kind}_step")
        if len(loaders) > 1 and takes(own, 2) and not takes(own, 3):
            name = f"{type(run.module).__name__}.{kind}_step"
            raise InterlockError(
                f"{name} is to read {len(loaders)} loaders, and takes no dataloader_idx\n"
                f"  hint: def {kind}_step(self, batch, batch_idx, dataloader_idx=0)"
            )
        self._own_step = takes_index(own)
        through = run.wrapped.evaluation if run.wrapped is not None else None
        self._step = run.trainer.profiler.wrap(f"{kind}_step", self._own_step if through is None else through)
        works = getattr(run.plugins["accelerator"], "inference_mode", True)
        # what a module keeps of validation inside a fit may take part in training, which inference tensors cannot
        self._inference = run.trainer.inference_mode and through is None and works and not run.setup.optimizers
        self._context = run.hooks.forward_context() if run.hooks.changes("forward_context") else None
        self.when_known: Callable[[], None] | None = None
        """Called when the metrics are known and before anyone else is told so."""
        self._on_batch_start = run.events.listeners(f"on_{kind}_batch_start")
        self._on_batch_end = run.events.listeners(f"on_{kind}_batch_end")

    def use_loaders(self, loaders: Sequence[Any]) -> None:
        """Read ``loaders`` from the next evaluation on."""
        name = {"validation": "limit_val_batches"}.get(self.kind, f"limit_{self.kind}_batches")
        self.loaders = loaders
        self.totals = [batches_within(self._limit, length_of(loader), name) for loader in loaders]

    def run_once(self) -> Outcome:
        """Evaluate all loaders once; every rank calls it."""
        run, fire, kind = self.run, self.run.events.fire, self.kind
        trainer = run.trainer
        self.results.reset()
        trainer.results = self.results
        predictions: list[list[Any]] = []
        with trainer.doing(kind), evaluating(run.router), run.router.running(self._own_step), self._no_gradients():
            fire(f"on_{kind}_model_eval")
            fire(f"on_{kind}_start")
            fire(f"on_{kind}_epoch_start")
            for number, loader in enumerate(self.loaders):
                predictions.append(self._run_loader(number, loader))
            self.results.batch = None
            if kind == "predict":
                fire("on_predict_epoch_end")
            else:
                fire(f"on_{kind}_epoch_end")
                self.results.meet()
                if not trainer.sanity_checking:
                    trainer.take(self.results)
                    trainer.log_to_loggers(self.results.epoch_metrics(logger=True))
            if self.when_known is not None:
                self.when_known()
            fire(f"on_{kind}_end")
        fire(f"on_{kind}_model_train")
        return Outcome(self.results.by_loader(len(self.loaders)), predictions)

    def sanity_check(self, batches: int) -> None:
        """Run a few batches before training, so that a fault in validation does not wait for an epoch's end.

        Random numbers go on as if it had not happened, and nothing is logged.
        """
        trainer, totals, state = self.run.trainer, self.totals, get_rng_state()
        self.totals = (
            [batches if total is None else min(batches, total) for total in totals] if batches >= 0 else totals
        )
        trainer.sanity_checking = True
        try:
            self.run.events.fire("on_sanity_check_start")
            self.run_once()
            self.run.events.fire("on_sanity_check_end")
        finally:
            trainer.sanity_checking = False
            self.totals = totals
            self.results.reset()
            set_rng_state(state)

    def _no_gradients(self) -> AbstractContextManager[Any]:
        return torch.inference_mode() if self._inference else torch.no_grad()

    def _run_loader(self, number: int, loader: Any) -> list[Any]:
        kept: list[Any] = []
        set_epoch(loader, self.run.trainer.current_epoch)
        extra = (number,) if len(self.loaders) > 1 else ()
        self.results.loader = number if extra else None
        transfer = self.run.transfer(number)
        batches = self.run.trainer.profiler.batches(f"{self.kind}_dataloader", read(loader))
        for index, (batch, own) in enumerate(self._in_step(islice(batches, self.totals[number]))):
            if not own:
                self._keep_up(transfer, batch, index, *extra)
                continue
            if transfer is not None:
                batch = transfer(batch, self.run.device)
            self.results.batch = batch
            for listener in self._on_batch_start:
                listener(batch, index, *extra)
            if self._context is None:
                outputs = self._step(batch, index, *extra)
            else:
                with self._context:
                    outputs = self._step(batch, index, *extra)
            if self._keep:
                kept.append(outputs)
            for listener in self._on_batch_end:
                listener(outputs, batch, index, *extra)
        self.results.loader = None
        return kept

    def _in_step(self, batches: Iterator[Any]) -> Iterator[tuple[Any, bool]]:
        """Yield each batch, and True for it.

        Where ranks exchange tensors inside a step, all run as many: one that has no batch left gets its last one again,
        and False for it, until all are done.
        """
        wrapped = self.run.wrapped
        together = wrapped is not None and wrapped.evaluation_exchanges and self.run.ranks.world_size > 1
        if not together:
            yield from ((batch, True) for batch in batches)
            return
        nothing = object()
        last: Any = nothing
        while True:
            batch = next(batches, nothing)
            left = torch.tensor([int(batch is not nothing)], device=self.run.device)
            if not bool(self.run.hooks.reduce(left, "max")):
                return
            if batch is nothing and last is nothing:
                raise InterlockError(
                    f"rank {self.run.ranks.global_rank} has no batch to evaluate while others have, and this strategy "
                    "runs each step on all ranks\n  hint: evaluate at least one sample for each rank"
                )
            last = last if batch is nothing else batch
            yield last, batch is not nothing

    def _keep_up(self, transfer: Transfer | None, batch: Any, index: int, *extra: int) -> None:
        """Run a step for the other ranks' sake; what it returns and logs is dropped."""
        if transfer is not None:
            batch = transfer(batch, self.run.device)
        with recording(batch), self._context or nullcontext():
            self._step(batch, index, *extra)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put the module in eval mode, and afterwards each part of it back into the mode it had."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode

"""The evaluation loop: eval mode, no gradients, and everything as it was afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import nn

from core.arguments import batches_within
from core.data.sharding import set_epoch
from core.data.stream import length_of, read
from core.loops.run import Run, takes_index


class EvaluationLoop:
    """Runs ``validation_step`` over loaders.

    Args:
        run: the run it belongs to.
        loaders: this rank's loaders.
        limit: batches of each loader, or a fraction of it.
    """

    stage = "validation"

    def __init__(self, run: Run, loaders: Sequence[Any], limit: int | float) -> None:
        self.run, self.loaders = run, loaders
        self.totals = [batches_within(limit, length_of(loader), "limit_val_batches") for loader in loaders]
        self.results = run.results(on_step=False, on_epoch=True)
        hooks = run.hooks
        self._transfer = run.transfer
        self._own_step = takes_index(run.module.validation_step)  # type: ignore[arg-type]
        through = run.wrapped.evaluation if run.wrapped is not None else None
        self._step = self._own_step if through is None else through
        self._context = hooks.forward_context() if hooks.changes("forward_context") else None
        self._on_batch_start = run.events.listeners("on_validation_batch_start")
        self._on_batch_end = run.events.listeners("on_validation_batch_end")

    def run_once(self) -> dict[str, float]:
        """Evaluate all loaders once and return the epoch's metrics; every rank calls it."""
        run, fire = self.run, self.run.events.fire
        self.results.reset()
        trainer = run.trainer
        trainer.results = self.results
        trainer.validating = True
        with evaluating(run.router), run.router.running(self._own_step), torch.no_grad():
            fire("on_validation_start")
            fire("on_validation_epoch_start")
            for number, loader in enumerate(self.loaders):
                self._run_loader(number, loader)
            fire("on_validation_epoch_end")
            self.results.meet()
            trainer.take(self.results)
            trainer.log_to_loggers(self.results.epoch_metrics(logger=True))
            fire("on_validation_end")
        trainer.validating = False
        return self.results.epoch_metrics()

    def _run_loader(self, number: int, loader: Any) -> None:
        set_epoch(loader, self.run.trainer.current_epoch)
        extra = (number,) if len(self.loaders) > 1 else ()
        for index, batch in enumerate(islice(read(loader), self.totals[number])):
            if self._transfer is not None:
                batch = self._transfer(batch, self.run.device)
            self.results.batch = batch
            for listener in self._on_batch_start:
                listener(batch, index, *extra)
            if self._context is None:
                outputs = self._step(batch, index, *extra)
            else:
                with self._context:
                    outputs = self._step(batch, index, *extra)
            for listener in self._on_batch_end:
                listener(outputs, batch, index, *extra)


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

"""Show what a module is made of before it is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from core.arguments import whole
from core.callbacks.base import Callback
from core.callbacks.summary import Summary, summarize

if TYPE_CHECKING:
    from rich.console import Console

    from core.trainer import Trainer


class ModelSummary(Callback):
    """A table of the module's parts: name, type, parameters, whether they are trained, and the totals.

    Where the module has an ``example_input_array`` it runs through the module once, without a trace, and the sizes of
    what goes in and out of each part are shown too. The Trainer adds it unless ``enable_model_summary=False``.

    Args:
        max_depth: how deep to go: 1 the direct children, -1 everything, 0 the totals alone.
        console: where to draw; standard error by default.
    """

    def __init__(self, max_depth: int = 1, console: Console | None = None) -> None:
        self.max_depth = whole("max_depth", max_depth, least=-1)
        self._console = console

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_console": None}

    def on_fit_start(self, trainer: Trainer, module: nn.Module) -> None:
        run, example = trainer._run, getattr(module, "example_input_array", None)
        if run is None or example is None:
            summary = summarize(module, self.max_depth)
        else:  # every rank, since the forward of a sharded module is an exchange
            with run.hooks.forward_context():
                summary = summarize(module, self.max_depth, run.hooks.transfer_batch(example, run.device))
        if trainer.is_global_zero:
            self.show(summary)

    def show(self, summary: Summary) -> None:
        """Draw a summary; a subclass may do it in another way."""
        from rich.console import Console  # only the process that draws pays for the import

        console = self._console or Console(stderr=True)
        if summary.parts:
            console.print(summary.table())
        console.print("\n".join(summary.lines()), highlight=False, markup=False, soft_wrap=True)

"""What loggers are told when a fit begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.hyperparameters import simplified

if TYPE_CHECKING:
    from core.loops.run import Run


def begin_logging(run: Run) -> None:
    """Let all ranks name the same run, and hand the hyperparameters to the loggers; every rank calls it."""
    trainer = run.trainer
    if not trainer.loggers:
        return
    if run.ranks.world_size > 1:
        own = [getattr(logger, "version", None) for logger in trainer.loggers] if run.is_rank_zero else []
        for logger, version in zip(trainer.loggers, run.hooks.broadcast(own), strict=True):
            adopt = getattr(logger, "adopt_version", None)
            if callable(adopt) and not run.is_rank_zero:
                adopt(version)
    if not run.is_rank_zero:
        return
    params = hyperparameters(run)
    for logger in trainer.loggers:
        if params and callable(getattr(logger, "log_hyperparams", None)):
            logger.log_hyperparams(params)
        if callable(getattr(logger, "log_graph", None)):
            logger.log_graph(run.module)


def hyperparameters(run: Run) -> dict[str, Any]:
    """Return what module and data module saved with ``logger=True``, in plain types; the module has the last word."""
    params: dict[str, Any] = {}
    for owner in (run.data.datamodule, run.module):
        if not getattr(owner, "_log_hparams", getattr(owner, "_log_hyperparams", False)):
            continue
        values: Any = getattr(owner, "hparams", {})
        plain = {name: str(value) for name, value in values.items()} | simplified(values)[0]
        other = [name for name, value in plain.items() if name in params and params[name] != value]
        if other:
            run.trainer.warn(f"module and data module differ in {', '.join(other)}; the module's go to the loggers")
        params |= plain
    return params

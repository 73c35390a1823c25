"""What loggers are told when a fit begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.hyperparameters import simplified

if TYPE_CHECKING:
    from core.loops.run import Run


def agree_on_versions(run: Run) -> None:
    """Let all ranks name the run that rank 0 names; every rank calls it before a hook may ask for ``log_dir``.

    A rank that counted folders by itself would count the one that rank 0 has made meanwhile.
    """
    loggers = run.trainer.loggers
    if not loggers or run.ranks.world_size == 1:
        return
    own = [getattr(logger, "version", None) for logger in loggers] if run.is_rank_zero else []
    for logger, version in zip(loggers, run.hooks.broadcast(own), strict=True):
        adopt = getattr(logger, "adopt_version", None)
        if callable(adopt) and not run.is_rank_zero:
            adopt(version)


def begin_logging(run: Run) -> None:
    """Hand the hyperparameters and the module to the loggers, on rank 0."""
    trainer = run.trainer
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

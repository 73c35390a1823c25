"""What the last stage tells the others after each step: the loss, what was logged, and what it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from builtin_plugins.pipeline.schedule import Place
from core.data.nested import map_tensors
from core.errors import InterlockError
from core.metrics.recording import Record, log_together, reduction_name

SAMPLES = 16


class Report(NamedTuple):
    """One step, as the last stage saw it."""

    loss: float | None
    logged: list[tuple[str, Any, int, dict[str, Any]]]
    seen: list[float]
    outputs: Any = None


class _Collector:
    """Takes the place of a run's results and keeps what is logged, to be sent elsewhere."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, int, dict[str, Any]]] = []

    def log(self, name: str, value: Any, *, batch_size: int, **how: Any) -> None:
        """Keep one call.

        Raises:
            InterlockError: for a metric object, whose state the other stages do not have.
        """
        if isinstance(value, Tensor):
            value = value.item() if value.numel() == 1 else value.cpu()
        elif not isinstance(value, int | float):
            raise InterlockError(
                f"log({name!r}) was given a {type(value).__name__}; the last stage hands numbers on, nothing else\n"
                "  hint: log the metric's computed value"
            )
        self.calls.append((name, value, batch_size, how))


def collect(records: Sequence[Record]) -> list[tuple[str, Any, int, dict[str, Any]]]:
    """Return what the micro-batches logged, each name once, in a form that can be sent."""
    collector = _Collector()
    for record in records:
        record.calls = [call._replace(results=collector) for call in record.calls]  # type: ignore[arg-type]
    log_together(records)
    return collector.calls


def log_everywhere(report: Report, module: nn.Module, is_last: bool) -> None:
    """Log on this stage what the last one logged, so that every rank has the same metrics.

    A sum over ranks must count it once: the other stages bring zero to it.
    """
    if not report.logged:
        return
    trainer: Any = module.trainer  # a module that logs has one
    for name, value, batch_size, how in report.logged:
        once = how.get("sync_dist") and reduction_name(how.get("reduce_fx", "mean")) == "sum" and not is_last
        trainer.results.log(name, 0.0 if once else value, batch_size=batch_size, **how)


def glimpse(batch: Any) -> list[float]:
    """Return a few numbers of the batch's tensors, by which stages see whether they read the same one."""
    found: list[float] = []

    def look(tensor: Tensor) -> Tensor:
        flat = tensor.detach().reshape(-1)
        picked = flat[:: max(1, flat.numel() // SAMPLES)][:SAMPLES]
        parts = (picked.real, picked.imag) if picked.is_complex() else (picked,)
        found.append(float(flat.numel()))
        for part in parts:
            found.extend(part.double().nan_to_num(nan=-1.0).tolist())
        return tensor

    map_tensors(batch, look)
    return found


def refuse_other_batch(seen: list[float], batch: Any, place: Place) -> None:
    """Refuse to train on when this stage read another batch than the last one.

    Raises:
        InterlockError: with what to do about it.
    """
    if seen != glimpse(batch):
        where = f"stage {place.stage} (rank {place.global_rank(place.stage)})"
        raise InterlockError(
            f"{where} and the last stage of its pipeline read different batches\n"
            "  hint: every stage needs the same order of samples: leave use_distributed_sampler on, or give the loader "
            "a sampler whose order does not depend on the process"
        )

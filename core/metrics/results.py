"""The values logged in one stage.

A call of ``log`` in the hot loop keeps a detached tensor and does no arithmetic for values that are wanted per
step only; nothing is turned into a Python number before someone looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core.data.nested import batch_size_of
from core.errors import InterlockError, InvalidArgument, WrongType
from core.metrics.recording import RECORD

if TYPE_CHECKING:
    from core.plugins.binding import Hooks

LOADER_SUFFIX = "/dataloader_idx_"
REDUCTIONS = ("mean", "sum", "min", "max")


@dataclass(slots=True)
class Entry:
    """One logged name: how it was asked for, its last value, and what it came to over the epoch."""

    name: str
    on_step: bool
    on_epoch: bool
    prog_bar: bool
    logger: bool
    reduce_fx: str
    sync_dist: bool
    value: Tensor | float = 0.0
    metric: Any = None
    """An object that accumulates by itself, with ``compute`` and ``reset``."""
    total: Tensor | None = None
    weight: float = 0.0
    met: bool = False
    """Whether the ranks have met over it: a value that comes later stands for itself."""
    loader: int | None = None
    """The number of the loader that it belongs to, where there are several."""

    @property
    def step_name(self) -> str:
        """The name of the step value; it is forked only where both are wanted."""
        return self._forked("_step") if self.on_epoch else self.name

    @property
    def epoch_name(self) -> str:
        """The name of the epoch value."""
        return self._forked("_epoch") if self.on_step else self.name

    def _forked(self, ending: str) -> str:
        name, suffix, number = self.name.partition(LOADER_SUFFIX)
        return f"{name}{ending}{suffix}{number}"

    def add(self, value: Tensor | float, batch_size: int) -> None:
        """Take one value of the epoch; means are weighted by ``batch_size``."""
        if self.met:
            self.total, self.weight, self.met = None, 0.0, False
        # sums of many values in 16 or 32 bits would lose the small ones
        tensor = torch.as_tensor(value, dtype=torch.float64)
        if self.reduce_fx == "mean":
            tensor = tensor * batch_size
            self.weight += batch_size
        if self.total is None:
            self.total = tensor.clone()
        elif self.reduce_fx in ("mean", "sum"):
            self.total = self.total + tensor
        else:
            self.total = getattr(torch, f"{self.reduce_fx}imum")(self.total, tensor)

    def epoch_value(self) -> Tensor | None:
        """Return what the values of the epoch come to, or None when there was none."""
        if self.metric is not None:
            return None  # its value is taken when the ranks meet
        if self.total is None:
            return None
        return self.total / self.weight if self.reduce_fx == "mean" else self.total


class Results:
    """All entries of one stage.

    Args:
        on_step, on_epoch: what ``log`` means when its caller does not say.
        hooks: the run's hooks, for values that are wanted across ranks.
        device: where values are brought together.
        in_step: whether all ranks run the same steps; else a step's value is this rank's own, whatever was asked for.
        gather: returns what every rank gives it, in their order.
    """

    def __init__(
        self,
        on_step: bool,
        on_epoch: bool,
        hooks: Hooks,
        device: torch.device,
        in_step: bool = True,
        gather: Callable[[Any], list[Any]] = lambda own: [own],
    ) -> None:
        self._defaults = self._in_batches = on_step, on_epoch
        self._hooks, self._device, self._in_step, self._gather = hooks, device, in_step, gather
        self._entries: dict[str, Entry] = {}
        self._over = self._outside = False
        self._new: list[Entry] = []
        self.kept: dict[str, Entry] = {}
        """Those of which nothing but the last value is wanted: a tensor may be put there without asking again."""
        self.batch: Any = None
        """The batch of the current step; its size is looked up only where a mean needs it."""
        self.loader: int | None = None
        """The number of the loader that is read, where there are several; it becomes part of the names."""

    def outside_batches(self, outside: bool) -> None:
        """Say whether what is logged from now on belongs to the epoch as a whole, and to no batch."""
        self._outside = outside
        self._defaults = (False, True) if outside else self._in_batches
        if outside:
            self.kept.clear()

    def log(
        self,
        name: str,
        value: Any,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        prog_bar: bool = False,
        logger: bool = True,
        reduce_fx: str | Callable[..., Any] = "mean",
        sync_dist: bool = False,
        batch_size: int | None = None,
        add_dataloader_idx: bool = True,
    ) -> None:
        """See :meth:`core.module.Module.log`."""
        record = RECORD.get()
        if record is not None:  # one of several replicas: they are logged together when all are done
            how: dict[str, Any] = {"on_step": on_step, "on_epoch": on_epoch, "prog_bar": prog_bar, "logger": logger}
            how |= {"reduce_fx": reduce_fx, "sync_dist": sync_dist, "add_dataloader_idx": add_dataloader_idx}
            record.add(self, name, value, batch_size, how)
            return
        if self.loader is not None and add_dataloader_idx:
            name = f"{name}{LOADER_SUFFIX}{self.loader}"
        entry = self._entries.get(name)
        if entry is None or (self._outside and not entry.on_epoch):
            entry = self._new_entry(name, on_step, on_epoch, prog_bar, logger, reduce_fx, sync_dist)
        if type(value) is not Tensor and callable(getattr(value, "compute", None)):
            self._log_metric(entry, value)
            return
        if isinstance(value, Tensor):
            _refuse_many(name, value)
            value = value.detach()
        elif type(value) is not float and type(value) is not int:
            if not isinstance(value, Real):
                raise WrongType(
                    f"log({name!r}) takes a number or a tensor of one, not {type(value).__name__} {value!r}"
                )
            value = float(value)  # numpy's, or True and False
        if entry.on_step:
            synced = entry.sync_dist and self._in_step
            entry.value = self._across_ranks(value, entry.reduce_fx) if synced else value
        if entry.on_epoch:
            if batch_size is None:
                batch_size = batch_size_of(self.batch)
            entry.add(value, batch_size)

    def _log_metric(self, entry: Entry, metric: Any) -> None:
        """Take a metric object: it has taken the batch already, and says what it came to when it is asked."""
        entry.metric = metric
        latest = getattr(metric, "_forward_cache", None)
        if entry.on_step and latest is not None:
            entry.value = latest.detach() if isinstance(latest, Tensor) else latest

    def _new_entry(
        self,
        name: str,
        on_step: bool | None,
        on_epoch: bool | None,
        prog_bar: bool,
        logger: bool,
        reduce_fx: str | Callable[..., Any],
        sync_dist: bool,
    ) -> Entry:
        reduction = reduce_fx if isinstance(reduce_fx, str) else getattr(reduce_fx, "__name__", "")
        if reduction not in REDUCTIONS:
            raise InvalidArgument(f"log({name!r}, reduce_fx={reduce_fx!r}) must be one of {', '.join(REDUCTIONS)}")
        if self._outside and (on_step or on_epoch is False):
            raise InvalidArgument(
                f"log({name!r}, on_step={on_step}, on_epoch={on_epoch}) was called where there is no step\n"
                "  hint: leave out on_step and on_epoch; outside batches a value belongs to the epoch"
            )
        entry = Entry(
            name,
            self._defaults[0] if on_step is None else on_step,
            self._defaults[1] if on_epoch is None else on_epoch,
            prog_bar,
            logger,
            reduction,
            sync_dist,
        )
        entry.loader = self.loader
        self._entries[name] = entry
        # in evaluation a name may belong to the loader that is read
        if self._in_step and entry.on_step and not entry.on_epoch and not entry.sync_dist:
            self.kept[name] = entry
        return entry

    def _across_ranks(self, value: Tensor | float, op: str) -> Tensor:
        return self._hooks.reduce(torch.as_tensor(value, device=self._device), op)  # type: ignore[no-any-return]

    def step_metrics(self, *, prog_bar: bool = False, logger: bool = False) -> dict[str, float]:
        """Return the last step values as numbers: all, or those for the bar or the loggers."""
        entries = [e for e in self._select(prog_bar, logger) if e.on_step]
        numbers = as_numbers([(e.name, e.value) for e in entries])
        return {e.step_name: number for e, number in zip(entries, numbers, strict=True)}

    def epoch_metrics(self, *, prog_bar: bool = False, logger: bool = False, new: bool = False) -> dict[str, float]:
        """Return the epoch values as numbers; call :meth:`meet` first, on every rank.

        ``new`` leaves out those that the ranks had met over before they met last.
        """
        entries = [e for e in self._select(prog_bar, logger) if e.on_epoch and (not new or e in self._new)]
        values = {e.epoch_name: e.epoch_value() for e in entries}
        known = [(name, value) for name, value in values.items() if value is not None]
        return dict(zip([name for name, _ in known], as_numbers(known), strict=True))

    def callback_metrics(self) -> dict[str, float]:
        """Return the step values as numbers, and values wanted in both ways under their plain names too.

        A plain name, which callbacks monitor, stands for the last step's value, and for the epoch's once it is over;
        then all values of the epoch are there.
        """
        plain: dict[str, float] = {}
        for entry in self._entries.values():
            if entry.on_step and entry.on_epoch:
                value = entry.epoch_value() if self._over else None
                plain[entry.name] = float(entry.value if value is None else value)
        return self.step_metrics() | plain | (self.epoch_metrics() if self._over else {})

    def by_loader(self, count: int) -> list[dict[str, float]]:
        """Return the epoch values of each of ``count`` loaders; values of no loader stand in each."""
        values = self.epoch_metrics()
        if count <= 1:
            return [values]
        owner = {entry.epoch_name: entry.loader for entry in self._entries.values()}
        return [{name: v for name, v in values.items() if owner[name] in (None, number)} for number in range(count)]

    def _select(self, prog_bar: bool, logger: bool) -> Iterator[Entry]:
        for entry in self._entries.values():
            if (not prog_bar or entry.prog_bar) and (not logger or entry.logger):
                yield entry

    def meet(self) -> None:
        """Bring the epoch values that want it together across ranks, if they came since the last time.

        Every rank calls it when an epoch's batches are done, and again when the hooks at its end are.

        Raises:
            InterlockError: when a metric object was logged on some ranks only; the others would wait for it.
        """
        self._over = True
        epoch = [e for e in self._entries.values() if e.on_epoch and not e.met]
        metrics = [e.name for e in epoch if e.metric is not None]
        plain = [
            [e.name, e.on_step, e.on_epoch, e.prog_bar, e.logger, e.reduce_fx, e.sync_dist, e.loader]
            for e in epoch
            if e.sync_dist and e.metric is None
        ]
        told = self._gather([metrics, plain])
        _refuse_missing([names for names, _ in told])
        for name in metrics:  # metric objects meet across ranks by themselves
            entry = self._entries[name]
            entry.total, entry.weight = torch.as_tensor(entry.metric.compute()).detach(), 1.0
            entry.metric.reset()
            entry.metric = None
        for asked in dict.fromkeys(tuple(one) for _, entries in told for one in entries):
            missing = Entry(*asked[:-1])
            missing.loader = asked[-1]
            entry = self._entries.setdefault(asked[0], missing)
            if entry.total is None:  # this rank saw no batch, and logged nothing
                entry.value = float("nan")
            self._meet_entry(entry)
            if entry not in epoch:
                epoch.append(entry)
        self._new = epoch
        for entry in epoch:
            entry.met = True

    def _meet_entry(self, entry: Entry) -> None:
        op = "sum" if entry.reduce_fx == "mean" else entry.reduce_fx
        empty = {"min": float("inf"), "max": float("-inf")}.get(op, 0.0)
        total = torch.as_tensor(empty if entry.total is None else entry.total, device=self._device)
        pair = torch.stack([total.double(), torch.as_tensor(entry.weight, device=self._device).double()])
        reduced = self._hooks.reduce(pair, op)
        entry.total, entry.weight = reduced[0], float(reduced[1])

    def reset(self) -> None:
        """Forget all entries; called at the start of an epoch."""
        self._entries.clear()
        self._over, self._new = False, []
        self.kept.clear()


def as_numbers(named: Sequence[tuple[str, Tensor | float]]) -> list[float]:
    """Return the values as numbers; those on one device are fetched together, since each fetch waits for it.

    Raises:
        InvalidArgument: naming a value that is not one number.
    """
    numbers: list[float] = []
    alike: dict[tuple[torch.device, torch.dtype], tuple[list[int], list[Tensor]]] = {}
    for name, value in named:
        if isinstance(value, Tensor) and value.ndim:
            _refuse_many(name, value)
            value = value.reshape(())
        if isinstance(value, Tensor) and not value.is_cpu:
            places, tensors = alike.setdefault((value.device, value.dtype), ([], []))
            places.append(len(numbers))
            tensors.append(value)
            value = 0.0  # until it is fetched
        numbers.append(float(value))
    for places, tensors in alike.values():
        for place, number in zip(places, torch.stack(tensors).tolist(), strict=True):
            numbers[place] = float(number)
    return numbers


def _refuse_many(name: str, value: Tensor) -> None:
    if value.numel() != 1:
        raise InvalidArgument(f"log({name!r}) takes one number, not a tensor of shape {tuple(value.shape)}")


def _refuse_missing(names: list[list[str]]) -> None:
    for rank, own in enumerate(names):
        for other, theirs in enumerate(names):
            missing = [name for name in own if name not in theirs]
            if missing:
                raise InterlockError(
                    f"the metric object logged as {missing[0]!r} on rank {rank} was not logged on rank {other}, and "
                    "its compute() waits for every rank\n  hint: give every rank a batch, or log what compute() returns"
                )

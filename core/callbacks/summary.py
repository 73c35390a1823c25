"""What a module is made of: its parts, their parameters, and what goes in and out of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from core.data.nested import map_tensors
from core.seed import get_rng_state, set_rng_state

if TYPE_CHECKING:
    from rich.table import Table


@dataclass
class Part:
    """One row: a part of the module."""

    name: str
    kind: str
    params: int
    trainable: int
    in_size: str = ""
    out_size: str = ""

    @property
    def trained(self) -> str:
        """Whether its parameters are trained."""
        if not self.params:
            return ""
        return {0: "no", self.params: "yes"}.get(self.trainable, f"{count(self.trainable)} of them")


@dataclass
class Summary:
    """The parts of a module and the totals."""

    parts: list[Part] = field(default_factory=list)
    trainable: int = 0
    frozen: int = 0
    bytes: int = 0
    evaluating: int = 0
    """Parts that are in eval mode."""
    uninitialized: int = 0
    """Lazy parameters, whose size is not known before the first batch."""
    sizes_from: str = ""
    """Where the sizes come from, or why there are none."""

    @property
    def total(self) -> int:
        """Parameters in all."""
        return self.trainable + self.frozen

    def table(self) -> Table:
        """Return it as a table for rich."""
        from rich.table import Table

        sizes = any(part.in_size or part.out_size for part in self.parts)
        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
        for title in ("name", "type"):
            table.add_column(title, overflow="fold")
        for title in ("params", "trained", *(("in", "out") if sizes else ())):
            table.add_column(title, justify="right" if title == "params" else "left", overflow="fold")
        for part in self.parts:
            row = [part.name, part.kind, count(part.params) if part.params else "", part.trained]
            table.add_row(*row, *((part.in_size, part.out_size) if sizes else ()))
        return table

    def lines(self) -> list[str]:
        """Return the totals, a line each."""
        lines = [f"{count(self.total)} parameters: {count(self.trainable)} trained, {count(self.frozen)} frozen"]
        lines[0] += f"; {size(self.bytes)}"
        if self.uninitialized:
            lines.append(f"{self.uninitialized} lazy parameters, not counted: their size is not known yet")
        if self.evaluating:
            lines.append(f"{self.evaluating} parts are in eval mode")
        if self.sizes_from:
            lines.append(self.sizes_from)
        return lines


def count(number: int) -> str:
    """Return a number of parameters with three digits: 950, 1.2 K, 3.45 M."""
    for unit, one in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= one:
            return f"{number / one:.3g} {unit}" if number < 999.5 * one else f"{number / one:.0f} {unit}"
    return str(number)


def size(number: int) -> str:
    """Return a number of bytes with three digits: 950 bytes, 1.2 kB, 3.45 MB."""
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= one:
            return f"{number / one:.3g} {unit}" if number < 999.5 * one else f"{number / one:.0f} {unit}"
    return f"{number} bytes"


def summarize(module: nn.Module, max_depth: int = 1, example: Any = None) -> Summary:
    """Look at ``module``.

    Args:
        module: the module.
        max_depth: how deep to go: 1 the direct children, -1 everything, 0 the totals alone.
        example: an input to find sizes with; by default the module's ``example_input_array``.
    """
    summary = Summary()
    seen: set[int] = set()
    for parameter in module.parameters():
        if is_lazy(parameter):
            summary.uninitialized += 1
        elif id(parameter) not in seen:
            seen.add(id(parameter))
            summary.bytes += parameter.numel() * parameter.element_size()
            if parameter.requires_grad:
                summary.trainable += parameter.numel()
            else:
                summary.frozen += parameter.numel()
    shown = dict(_shown(module, max_depth))
    summary.parts = [_part(name, part) for name, part in shown.items()]
    summary.evaluating = sum(not part.training for name, part in module.named_modules() if name)
    example = getattr(module, "example_input_array", None) if example is None else example
    if example is not None:
        try:
            sizes = _sizes(module, {part: name for name, part in shown.items()}, example)
        except Exception as error:  # the forward is the user's code, and the summary must not end the run
            summary.sizes_from = f"no sizes: forward of example_input_array failed: {type(error).__name__}: {error}"
        else:
            for part in summary.parts:
                part.in_size, part.out_size = sizes.get(part.name, ("", ""))
    return summary


def _shown(module: nn.Module, max_depth: int) -> Iterator[tuple[str, nn.Module]]:
    for name, part in module.named_modules():
        if name and (max_depth < 0 or name.count(".") < max_depth):
            yield name, part


def _part(name: str, part: nn.Module) -> Part:
    known = [parameter for parameter in part.parameters() if not is_lazy(parameter)]
    trainable = sum(parameter.numel() for parameter in known if parameter.requires_grad)
    return Part(name, type(part).__name__, sum(parameter.numel() for parameter in known), trainable)


def _sizes(module: nn.Module, names: Mapping[nn.Module, str], example: Any) -> dict[str, tuple[str, str]]:
    """Return the sizes of the first call of each part in a forward of ``example``."""
    sizes: dict[str, tuple[str, str]] = {}

    def note(part: nn.Module, arguments: tuple[Any, ...], outputs: Any) -> None:
        sizes.setdefault(names[part], (_size(arguments), _size(outputs)))

    handles = [part.register_forward_hook(note) for part in names]
    device = next((p.device for p in module.parameters()), None)
    example = map_tensors(example, lambda tensor: tensor.to(device))
    try:
        with torch.no_grad(), undisturbed(module):
            if isinstance(example, Mapping):
                module(**example)
            else:
                module(*(example if isinstance(example, tuple) else (example,)))
    finally:
        for handle in handles:
            handle.remove()
    return sizes


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Put the module in eval mode inside, and leave modes and random numbers as they were."""
    modes, state = [(part, part.training) for part in module.modules()], get_rng_state()
    module.eval()
    try:
        yield
    finally:
        set_rng_state(state)
        for part, mode in modes:
            part.training = mode


def _size(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(list(value.shape))
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        inner = [_size(item) for item in value]
        return inner[0] if len(inner) == 1 else " and ".join(text for text in inner if text)
    return ""

"""The frozen plan that a request resolves to (torch-free). ``print(trainer.plan)`` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from core.declarations import Declaration
from core.rules import Combination, Party, party_of
from core.wording import shown


@dataclass(frozen=True)
class Chosen:
    """One plugin of the plan, where it comes from, and why it was taken."""

    declaration: Declaration
    distribution: str
    version: str
    reason: str
    options: tuple[tuple[str, object], ...] = ()

    @property
    def name(self) -> str:
        """The plugin's own name, whatever alias it was asked by."""
        return self.declaration.name

    def __str__(self) -> str:
        return f"{self.name}  [{self.distribution} {self.version}]  {self.reason}"


class Launch(NamedTuple):
    """How the processes start: ``here`` (this one alone), ``subprocess``, ``spawn``, ``fork`` or ``external``."""

    how: str
    reason: str


class HookRow(NamedTuple):
    """Who implements one hook: its one owner, and who wraps it, outermost first."""

    hook: str
    owner: str
    wrappers: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What will run. Making one changes nothing: no device, no process group, no environment variable."""

    accelerator: Chosen
    precision: Chosen
    strategy: Chosen
    num_devices: int
    devices: tuple[int, ...] | None
    devices_reason: str
    num_nodes: int
    world_size: int
    """Number of processes over all nodes."""
    launch: Launch
    request: Party
    hooks: tuple[HookRow, ...]

    @property
    def combination(self) -> Combination:
        """The three names."""
        return Combination(self.accelerator.name, self.precision.name, self.strategy.name)

    @property
    def chosen(self) -> tuple[Chosen, Chosen, Chosen]:
        """The three plugins, in the order accelerator, precision, strategy."""
        return self.accelerator, self.precision, self.strategy

    @property
    def parties(self) -> tuple[Party, ...]:
        """Everyone who stated something when this plan was checked."""
        return (*(party_of(c.declaration) for c in self.chosen), self.request)

    def provides(self, token: str) -> bool:
        """Tell whether any party of the plan provides ``token``."""
        return any(token in party.provides for party in self.parties)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan in plain types, as it is written into checkpoints and summaries."""
        plugins: dict[str, dict[str, Any]] = {
            c.declaration.kind: {
                "name": c.name,
                "distribution": c.distribution,
                "version": c.version,
                "options": {key: value if _is_plain(value) else shown(value) for key, value in c.options},
                "reason": c.reason,
            }
            for c in self.chosen
        }
        kept = [token for token in self.strategy.declaration.provides if token.startswith("checkpoint.")]
        plugins["strategy"]["checkpoint"] = kept  # what a later reader has to know about the writer
        return {
            **plugins,
            "devices": list(self.devices) if self.devices is not None else self.num_devices,
            "num_nodes": self.num_nodes,
            "world_size": self.world_size,
            "launch": self.launch.how,
            "hooks": {row.hook: {"owner": row.owner, "wrappers": list(row.wrappers)} for row in self.hooks},
        }

    def __str__(self) -> str:
        devices = str(list(self.devices)) if self.devices is not None else str(self.num_devices)
        nodes = f" on each of {self.num_nodes} nodes" if self.num_nodes > 1 else ""
        rows = [
            ("accelerator", str(self.accelerator)),
            ("precision", str(self.precision)),
            ("strategy", str(self.strategy)),
            ("devices", f"{devices}{nodes}  {self.devices_reason}"),
            ("processes", f"{self.world_size}  {self.launch.how}: {self.launch.reason}"),
        ]
        for chosen in self.chosen:
            if chosen.options:
                options = ", ".join(f"{key}={shown(value)}" for key, value in chosen.options)
                rows.append((f"  {chosen.name}", f"({options})"))
        wrapped = [f"{row.hook} ({' > '.join([*row.wrappers, row.owner])})" for row in self.hooks if row.wrappers]
        if wrapped:
            rows.append(("wrapped", ", ".join(wrapped)))
        return "\n".join(["plan", *(f"  {label:<13} {text}" for label, text in rows)])


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)

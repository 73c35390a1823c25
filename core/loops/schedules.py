"""Step the learning-rate schedulers when they are due."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import nn

from core.errors import InvalidArgument
from core.optim import SchedulerConfig
from core.userhooks import overridden


class Schedules:
    """The schedulers of one run and how often each interval has come.

    A module that optimizes by itself steps them by itself too.
    """

    def __init__(self, configs: list[SchedulerConfig], module: nn.Module) -> None:
        self.configs = configs
        self._own_step = overridden(module, "lr_scheduler_step")
        self._automatic = getattr(module, "automatic_optimization", True)
        self.per_step = any(config.interval == "step" for config in configs)
        self._passed = {"step": 0, "epoch": 0}

    def step(
        self, interval: Literal["step", "epoch"], metrics: Callable[[], Mapping[str, Any]], plateau: bool | None = None
    ) -> None:
        """Step the schedulers of ``interval`` that are due.

        Args:
            interval: which interval has passed.
            metrics: gives the values that are monitored; they are not read where nobody looks at them.
            plateau: None for all; else only those that look at a metric, or only the others: at the end of an epoch
                the others step before validation and these after it.

        Raises:
            InvalidArgument: when a strict scheduler's metric was not logged.
        """
        if not self._automatic:
            return
        if plateau is not True:
            self._passed[interval] += 1
        for config in self.configs:
            wanted = config.interval == interval and plateau in (None, config.reduces_on_plateau)
            if wanted and self._passed[interval] % config.frequency == 0:
                self._step_one(config, metrics)

    def _step_one(self, config: SchedulerConfig, metrics: Callable[[], Mapping[str, Any]]) -> None:
        if not config.reduces_on_plateau:
            if self._own_step is not None:
                self._own_step(config.scheduler, None)
            else:
                config.scheduler.step()
            return
        values = metrics()
        if config.monitor is not None and config.monitor in values:
            if self._own_step is not None:
                self._own_step(config.scheduler, values[config.monitor])
            else:
                config.scheduler.step(values[config.monitor])
        elif config.strict:
            name, known = type(config.scheduler).__name__, ", ".join(sorted(values)) or "none"
            raise InvalidArgument(
                f"{name} monitors {config.monitor!r}, which was not logged; logged: {known}\n"
                '  hint: "frequency" says after how many epochs or steps it looks, "strict": False lets it pass'
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all schedulers."""
        return {"passed": dict(self._passed), "schedulers": [c.scheduler.state_dict() for c in self.configs]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self._passed = dict(state["passed"])
        for config, saved in zip(self.configs, state["schedulers"], strict=True):
            config.scheduler.load_state_dict(saved)

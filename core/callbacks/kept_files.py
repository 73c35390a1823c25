"""Which of the saved checkpoints are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class KeptFiles:
    """The best ``size`` files by their score; without scores the newest ``size``.

    A score that is not a number counts as the worst there is.

    Args:
        size: how many are kept; -1 all, 0 none.
        mode: ``"min"`` or ``"max"``: which scores are better.
        scored: whether files have scores.
    """

    size: int
    mode: str
    scored: bool
    scores: dict[str, float | None] = field(default_factory=dict)
    """Score by path, oldest first."""

    def wants(self, score: float | None) -> bool:
        """Tell whether a file of this score would be kept."""
        if self.size == 0:
            return False
        if self.size < 0 or len(self.scores) < self.size or not self.scored:
            return True
        return self._rank(score) < self._rank(self.scores[self.worst])

    @property
    def next_to_go(self) -> str:
        """The file that the next one puts out; "" where there is room."""
        return self.worst if 0 < self.size <= len(self.scores) else ""

    def add(self, path: str, score: float | None) -> list[str]:
        """Take a file, and return those that have to give way."""
        self.scores.pop(path, None)
        self.scores[path] = score
        gone = []
        while 0 < self.size < len(self.scores):
            gone.append(self.worst)
            del self.scores[gone[-1]]
        return gone

    @property
    def best(self) -> str:
        """The file with the best score, the newest without scores; "" when there is none."""
        if not self.scores:
            return ""
        if not self.scored:
            return list(self.scores)[-1]
        return min(self.scores, key=lambda path: self._rank(self.scores[path]))

    @property
    def worst(self) -> str:
        """The file to give up first: the worst score, the oldest without scores; "" when there is none."""
        if not self.scores:
            return ""
        if not self.scored:
            return next(iter(self.scores))
        return max(self.scores, key=lambda path: self._rank(self.scores[path]))

    def _rank(self, score: float | None) -> float:
        if score is None or math.isnan(score):
            return math.inf
        return score if self.mode == "min" else -score

    def __getitem__(self, path: str) -> Any:
        return self.scores.get(path)

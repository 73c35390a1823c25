"""Observe a strategy on two devices with each of several precisions, in one program."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.observed import observe

from core.environments import detect_environment
from core.errors import InterlockError


def main(accelerator: str, strategy: str, output: str, *precisions: str) -> None:
    """Write what was observed, or why it was refused, by precision; one file for each rank."""
    found = {}
    for precision in precisions:
        try:
            seen = observe(strategy, precision, 2, accelerator)
            what = ("events", "exchanges", "skips", "steps")
            found[precision] = {name: getattr(seen, name) for name in what}
        except InterlockError as error:
            found[precision] = {"refused": str(error)}
    ranks = detect_environment().ranks
    Path(f"{output}.{ranks.global_rank if ranks else 0}").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

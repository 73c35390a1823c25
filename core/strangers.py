"""Tell, once, of installed plugins that are broken and have nothing to do with the run (torch-free)."""

from __future__ import annotations

import warnings
from functools import lru_cache

from core.discovery import BLOCK_VARIABLE, Found
from core.registry import Registry


@lru_cache(maxsize=1)
def warn_of_broken(registry: Registry) -> None:
    """Warn of the broken plugins of ``registry``, all in one; nothing happens when it is called again.

    The registry has read every declaration already, so nothing more is imported to know this.
    """
    broken = [item for item in registry.found if item.failure is not None]
    if not broken:
        return
    head = "an installed plugin is broken" if len(broken) == 1 else f"{len(broken)} installed plugins are broken"
    block = ",".join(dict.fromkeys(item.distribution for item in broken))
    rows = [f"  {_line(item)}" for item in broken]
    lines = [f"{head}; this run does without", *rows, f"  hint: {BLOCK_VARIABLE}={block} silences this"]
    warnings.warn("\n".join(lines), UserWarning, stacklevel=4)  # at the caller of fit


def _line(item: Found) -> str:
    assert item.failure is not None, "only broken ones are told"
    reason = item.failure.reason.partition("\n")[0]
    return f"{item.kind} {item.name!r} from {item.distribution} {item.version}, while {item.failure.phase}: {reason}"

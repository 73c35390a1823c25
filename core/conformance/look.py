"""Look at plugins in a process of their own: ``python -m core.conformance.look WHAT ARGUMENTS`` prints JSON.

``declaration REFERENCE [PROBE]`` imports a declaration, asks its probe, and tells whether torch came with it;
``implementation ACCELERATOR PRECISION STRATEGY`` imports the implementations and binds their hooks.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.discovery import PhaseError, load_object
from core.errors import InterlockError, PluginBroken

if TYPE_CHECKING:
    from core.plan import Plan

LIMIT = 120.0
HARMLESS = ("/dev/null", "/dev/tty", "/dev/pts/", "/dev/urandom", "/dev/random", "/dev/shm/")


@cache
def ask(*arguments: str) -> dict[str, Any]:
    """Run this module in a fresh process, once for each question; return its answer, or ``{"error": ...}``."""
    command = [sys.executable, "-m", "core.conformance.look", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"it did not end within {LIMIT:g} s"}
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": f"the process ended with exit status {done.returncode}: {done.stderr.strip()[-2000:]}"}
    return answer


def look_at_declaration(reference: str, probe: str = "") -> dict[str, Any]:
    """Import a declaration and ask its probe, as ``list`` does."""
    found: dict[str, Any] = {}
    try:
        load_object(reference, "import")
    except PhaseError as problem:
        found["error"] = str(problem)
    found["torch"] = "torch" in sys.modules
    if probe:
        from core.availability import run_probe

        before = open_devices()
        answer = run_probe(probe)
        found["probe"] = {
            "count": answer.count,
            "reason": answer.reason,
            "torch": "torch" in sys.modules and not found["torch"],
            "opened": sorted(open_devices() - before),
        }
    return found


def open_devices() -> set[str]:
    """Return the device files that this process holds open; where the system does not tell, none."""
    folder = Path("/proc/self/fd")
    files = set()
    for entry in folder.iterdir() if folder.is_dir() else ():
        try:
            files.add(os.readlink(entry))
        except OSError:  # the one that read the folder is closed again
            continue
    return {file for file in files if file.startswith("/dev/") and not file.startswith(HARMLESS)}


def look_at_implementations(*names: str) -> dict[str, Any]:
    """Build the plugins of a plan and bind their hooks, as a run does."""
    from core.plugins.binding import bind, make_plugins
    from core.registry import get_registry
    from core.request import Request

    request = replace(Request(), accelerator=names[0], precision=names[1], strategy=names[2])
    plan = get_registry().resolve(replace(request, devices=request.devices._replace(count=1)))
    try:
        plugins = make_plugins(plan, {})
        bind(plan, plugins)
    except PluginBroken as error:
        return {"kind": error.kind, "phase": error.phase, "reason": error.reason}
    return {"options": option_problems(plan, plugins)}


def option_problems(plan: Plan, plugins: dict[str, Any]) -> dict[str, list[str]]:
    """Return by kind what is wrong with declared options: each has that default and is kept."""
    problems: dict[str, list[str]] = {}
    for chosen in plan.chosen:
        declaration = chosen.declaration
        plugin = plugins[declaration.kind]
        accepted = inspect.signature(type(plugin).__init__).parameters
        found = problems.setdefault(declaration.kind, [])
        for option in declaration.options:
            parameter = accepted.get(option.name)  # None where the constructor takes any keyword
            if parameter is not None and parameter.default != option.default:
                found.append(f"{option.name} is {parameter.default!r} by default, not {option.default!r}")
            elif not hasattr(plugin, option.name):
                found.append(f"an instance has no attribute {option.name!r}, so the plan cannot show it")
    return problems


def main(arguments: Sequence[str]) -> int:
    """Print the answer as one line of JSON, the last of the output."""
    what, *rest = arguments
    try:
        answer = look_at_declaration(*rest) if what == "declaration" else look_at_implementations(*rest)
    except InterlockError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""What a logger needs beside Interlock."""

from __future__ import annotations

from collections.abc import Sequence

from core.availability import package_problem
from core.declarations import Package
from core.errors import PluginUnavailable


def need_package(logger: str, packages: Sequence[str], module: str) -> None:
    """Refuse to make a logger where none of ``packages`` is installed; the first names our extra.

    Raises:
        PluginUnavailable: saying what to install.
    """
    problems = [package_problem(Package(package, extra=packages[0], module=module)) for package in packages]
    if all(problems):
        raise PluginUnavailable(f"logger {logger}", [problems[0] or ""])

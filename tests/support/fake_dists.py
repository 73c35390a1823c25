"""Write small distributions into a folder, as an installer would leave them there.

A folder with such distributions is put on ``sys.path`` (or on PYTHONPATH of a child process), and discovery
meets genuine metadata and genuine modules: nothing is mocked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

GROUPS = {
    "accelerator": "interlock.accelerators",
    "precision": "interlock.precisions",
    "strategy": "interlock.strategies",
}
_CLASSES = {
    "accelerator": "AcceleratorDeclaration",
    "precision": "PrecisionDeclaration",
    "strategy": "StrategyDeclaration",
}
_DEFAULT_PROVIDES = {
    "accelerator": ("device.cpu", "collective.gloo"),
    "precision": (),
    "strategy": ("clip.norm",),
}
PROBE = """
def probe():
    return Availability(count={count!r}, reason={reason!r})
"""


def module_name(distribution: str) -> str:
    """Return the import name that a fake distribution's module gets."""
    return distribution.replace("-", "_").replace(".", "_").lower()


def declaration_source(
    kind: str,
    name: str,
    *,
    attribute: str = "DECLARATION",
    module: str = "",
    count: int | None = None,
    reason: str = "",
    api: str = "API",
    before: str = "",
    **fields: object,
) -> str:
    """Return the source of a module that declares one plugin.

    ``fields`` are passed to the declaration as they print; ``count`` and ``reason`` are an accelerator's probe;
    ``before`` is source that runs before the declaration.
    """
    fields = {"provides": _DEFAULT_PROVIDES[kind], "summary": f"fake {name}", **fields}
    fields.setdefault("implementation", f"{module or 'nowhere'}:Implementation")
    if kind == "accelerator":
        fields.setdefault("probe", f"{module or 'nowhere'}:probe")
    given = "".join(f"    {key}={value!r},\n" for key, value in fields.items())
    probe = PROBE.format(count=count, reason=reason) if kind == "accelerator" else ""
    return (
        "from core.declarations import *\n"
        "from core.declarations import API, Availability, Exclude, Need, Option, Package\n"
        f"from core.declarations import {_CLASSES[kind]}\n"
        f"{dedent(before)}\n{probe}\n"
        f"{attribute} = {_CLASSES[kind]}(\n    name={name!r},\n    api={api},\n{given})\n"
    )


def write_metadata(
    folder: Path,
    distribution: str,
    version: str = "1.0",
    entry_points: Mapping[str, Mapping[str, str]] | str | None = None,
    *,
    metadata: str | None = None,
    egg: bool = False,
) -> Path:
    """Write a ``.dist-info`` (or ``.egg-info``) folder and return it.

    ``entry_points`` maps groups to names to values, or is the whole text. ``metadata`` replaces the usual METADATA;
    "" leaves the file out.
    """
    stem = module_name(distribution)
    info = folder / (f"{stem}.egg-info" if egg else f"{stem}-{version}.dist-info")
    info.mkdir(parents=True, exist_ok=True)
    if metadata is None:
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n\nA fake.\n"
    if metadata:
        (info / ("PKG-INFO" if egg else "METADATA")).write_text(metadata)
    if entry_points is not None and not isinstance(entry_points, str):
        sections = [
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
            for group, points in entry_points.items()
        ]
        entry_points = "\n".join(sections)
    if entry_points:
        (info / "entry_points.txt").write_text(entry_points)
    return info


def write_plugin(
    folder: Path,
    distribution: str,
    kind: str,
    name: str,
    *,
    version: str = "1.0",
    entry_point: str | None = None,
    value: str | None = None,
    source: str | None = None,
    **fields: object,
) -> Path:
    """Write a distribution with one plugin in one module, and return its metadata folder.

    ``entry_point`` and ``value`` replace the entry point's name and value, ``source`` the whole module; ``fields``
    go to :func:`declaration_source`.
    """
    module = module_name(distribution)
    folder.mkdir(parents=True, exist_ok=True)
    if source is None:
        source = declaration_source(kind, name, module=module, **fields)  # type: ignore[arg-type]
    (folder / f"{module}.py").write_text(dedent(source))
    points = {GROUPS[kind]: {entry_point or name: value or f"{module}:DECLARATION"}}
    return write_metadata(folder, distribution, version, points)

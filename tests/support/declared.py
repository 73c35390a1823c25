"""Registries made of declarations alone: no distribution, no file, no torch."""

from __future__ import annotations

from core.declarations import (
    API,
    AcceleratorDeclaration,
    Declaration,
    PrecisionDeclaration,
    StrategyDeclaration,
)
from core.discovery import Found
from core.registry import Registry


def accelerator(name: str, probe: str = "unbounded", **fields: object) -> AcceleratorDeclaration:
    """Return an accelerator's declaration; ``probe`` is a function of ``support.probes``."""
    return AcceleratorDeclaration(**_common(name, fields), probe=f"support.probes:{probe}")


def precision(name: str, **fields: object) -> PrecisionDeclaration:
    """Return a precision's declaration."""
    return PrecisionDeclaration(**_common(name, fields))


def strategy(name: str, **fields: object) -> StrategyDeclaration:
    """Return a strategy's declaration."""
    return StrategyDeclaration(**_common(name, fields))


def _common(name: str, fields: dict[str, object]) -> dict:
    return {"name": name, "summary": f"fake {name}", "implementation": "nowhere:Nothing", "api": API, **fields}


def found(declaration: Declaration, distribution: str = "fake", version: str = "1.0") -> Found:
    """Return what discovery would have made of an entry point with this declaration."""
    return Found(declaration.kind, declaration.name, "nowhere:D", distribution, version, declaration)


def registry_of(*declarations: Declaration) -> Registry:
    """Return a registry of these plugins, all from one distribution."""
    return Registry([found(declaration) for declaration in declarations])

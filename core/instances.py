"""Plugins that are given to the Trainer as configured instances rather than by name."""

from __future__ import annotations

from collections.abc import Mapping

from core.declarations import KINDS, Kind
from core.errors import WrongType
from core.plugins.base import Plugin
from core.registry import Registry


def split_instances(
    registry: Registry, given: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, Plugin], dict[Kind, tuple[tuple[str, object], ...]]]:
    """Return each kind's name, the instances among them, and the options that the instances carry.

    Raises:
        WrongType: for a class in place of an instance, and for an instance that no declaration names.
    """
    names: dict[str, object] = {}
    instances: dict[str, Plugin] = {}
    options: dict[Kind, tuple[tuple[str, object], ...]] = {}
    for kind in KINDS:
        value = names[kind] = given[kind]
        if isinstance(value, type):
            name = value.__name__
            raise WrongType(f"{kind} must be a name or an instance, not the class {name}; write {name}()")
        if not isinstance(value, Plugin):
            continue
        declaration = next((d for d in registry.declarations(kind) if d.implementation == _reference(value)), None)
        if declaration is None:
            raise WrongType(
                f"{kind} was given an instance of {_reference(value)}, which no installed {kind} declares as its "
                "implementation\n  hint: a plugin enters through an entry point with a declaration"
            )
        names[kind] = declaration.name
        instances[kind] = value
        options[kind] = tuple((o.name, getattr(value, o.name, o.default)) for o in declaration.options)
    return names, instances, options


def _reference(instance: object) -> str:
    return f"{type(instance).__module__}:{type(instance).__qualname__}"

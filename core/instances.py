"""Plugins that are given to the Trainer as configured instances rather than by name."""

from __future__ import annotations

from collections.abc import Mapping

from core.declarations import KINDS, Kind
from core.errors import InvalidArgument, WrongType
from core.plugins import Accelerator, Plugin, Precision, Strategy
from core.registry import Registry
from core.spellings import AUTO


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


def with_plugins(given: Mapping[str, object], plugins: object) -> dict[str, object]:
    """Return the three arguments with each instance of ``plugins`` in the place of its kind.

    Raises:
        WrongType: for an object that is no plugin.
        InvalidArgument: for two plugins of one kind, or one whose kind was given by an argument too.
    """
    items = list(plugins) if isinstance(plugins, list | tuple) else [] if plugins is None else [plugins]
    merged = dict(given)
    for item in items:
        kind = next((name for name, base in _BASES.items() if isinstance(item, base)), None)
        if kind is None:
            known = ", ".join(base.__name__ for base in _BASES.values())
            raise WrongType(f"plugins holds a {type(item).__name__}; each must be an instance of {known}")
        if isinstance(merged[kind], Plugin):
            both = f"{type(merged[kind]).__name__} and {type(item).__name__}"
            raise InvalidArgument(f"plugins: two of one kind, {both}: a run has one {kind}")
        if merged[kind] not in (None, AUTO):
            raise InvalidArgument(f"{kind}={merged[kind]!r} and plugins=[{type(item).__name__}] both choose the {kind}")
        merged[kind] = item
    return merged


_BASES: Mapping[str, type[Plugin]] = {"accelerator": Accelerator, "precision": Precision, "strategy": Strategy}

"""The registry: discover, look up, resolve (torch-free).

``python -m core.registry`` hands over to :func:`core.cli.main`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

from core.availability import reasons_against
from core.declarations import KINDS, Declaration, Kind
from core.discovery import Found, scan
from core.errors import DuplicatePlugin, PluginBroken, UnknownPlugin
from core.plan import Plan
from core.request import Request
from core.rules import Combination, Party, party_of, violations
from core.spellings import fold, nearest


class Registry:
    """Every plugin that was found, broken ones included, and the answers about them.

    Args:
        found: what a scan returned; tests hand in their own.
    """

    def __init__(self, found: Sequence[Found]) -> None:
        self.found = tuple(found)
        self._by_name: dict[tuple[Kind, str], list[Found]] = {}
        for item in self.found:
            for name in _names(item):
                entries = self._by_name.setdefault((item.kind, fold(name)), [])
                if item not in entries:
                    entries.append(item)

    def of_kind(self, kind: Kind) -> list[Found]:
        """Return the plugins of ``kind``, broken ones included, in the order of their names."""
        return [item for item in self.found if item.kind == kind]

    def declarations(self, kind: Kind) -> list[Declaration]:
        """Return the sound declarations of ``kind`` whose name no other distribution claims too."""
        return [
            item.declaration
            for item in self.of_kind(kind)
            if item.declaration is not None and len(self._by_name[kind, fold(item.name)]) == 1
        ]

    def names(self, kind: Kind) -> list[str]:
        """Return the names of ``kind`` that a request may use."""
        return sorted({item.name for item in self.of_kind(kind)})

    def find(self, kind: Kind, name: str) -> Found:
        """Return the plugin called ``name``, an alias of it, or ``"distribution:name"``.

        Raises:
            UnknownPlugin: with the nearest names.
            DuplicatePlugin: when several distributions claim the name.
            PluginBroken: when its declaration could not be read, the cause chained.
        """
        distribution, separator, bare = name.rpartition(":")
        entries = self._by_name.get((kind, fold(bare)), [])
        if separator:
            entries = [entry for entry in entries if fold(entry.distribution) == fold(distribution)]
        if not entries:
            raise self._unknown(kind, name)
        if len(entries) > 1:
            raise DuplicatePlugin(kind, bare, sorted(entry.distribution for entry in entries))
        entry = entries[0]
        if entry.failure is not None:
            raise PluginBroken(
                kind,
                entry.name,
                distribution=f"{entry.distribution} {entry.version}",
                phase=entry.failure.phase,
                reason=entry.failure.reason,
            ) from entry.failure.error
        return entry

    def _unknown(self, kind: Kind, name: str) -> UnknownPlugin:
        spellings = [n for item in self.of_kind(kind) for n in _names(item)]
        elsewhere = [other for other in KINDS if other != kind and (other, fold(name)) in self._by_name]
        hint = f"{name!r} is a {elsewhere[0]}: pass it as {elsewhere[0]}={name!r}" if elsewhere else None
        return UnknownPlugin(kind, name, known=self.names(kind), nearest=nearest(name, spellings), hint=hint)

    def resolve(self, request: Request) -> Plan:
        """Hold the declarations against each other and return the plan; changes nothing.

        Raises:
            UnknownPlugin, DuplicatePlugin, PluginBroken: as :meth:`find`.
            InvalidCombination: when a rule is broken, with all broken rules.
            PluginUnavailable: when it is valid but cannot run here.
        """
        from core.resolve import resolve  # the registry answers `list` without loading the planner

        return resolve(self, request)

    def valid_combinations(self, request: Party, within: dict[Kind, str]) -> Iterator[Combination]:
        """Yield every combination of sound plugins that satisfies the rule, with the names in ``within`` fixed."""
        pools = [
            [d for d in self.declarations(kind) if kind not in within or fold(d.name) == fold(within[kind])]
            for kind in KINDS
        ]
        for trio in product(*pools):
            if not violations([*map(party_of, trio), request]):
                yield Combination(*(declaration.name for declaration in trio))

    def can_run(self, combination: Combination) -> bool:
        """Tell whether all three plugins have their packages and hardware here."""
        pairs = zip(KINDS, combination, strict=True)
        return not any(reasons_against(self._declaration(kind, name)) for kind, name in pairs)

    def _declaration(self, kind: Kind, name: str) -> Declaration:
        declaration = self.find(kind, name).declaration
        assert declaration is not None, "find() raises for a plugin without a declaration"
        return declaration


def _names(item: Found) -> tuple[str, ...]:
    return (item.name, *(item.declaration.aliases if item.declaration else ()))


@lru_cache(maxsize=1)
def get_registry() -> Registry:
    """Return this process's registry; the entry points are scanned at the first call only."""
    return Registry(scan())


if __name__ == "__main__":
    # `-m` runs this file a second time as __main__; hand over to the one real module, which plugins share
    from core.cli import main

    raise SystemExit(main())

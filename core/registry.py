"""The registry: discover, look up, resolve (torch-free).

``python -m core.registry`` hands over to :func:`core.cli.main`.

Who a name belongs to: first to the plugins whose own name it is, then to those that have it as an alias. An
alias that is another plugin's name is not used, and ``list`` says so. Where two plugins claim a name, or two an
alias that is nobody's name, using it is an error that names both, whatever the order they were found in and
wherever they come from; each can be chosen as ``"distribution:name"``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from core.declarations import KINDS, Declaration, Kind
from core.discovery import BLOCK_VARIABLE, PLUGINS_VARIABLE, Found, scan_with_notes
from core.errors import DuplicatePlugin, PluginBroken, UnknownPlugin
from core.metadata import normalize
from core.rules import Combination, Party, party_of, violations
from core.spellings import fold, nearest
from core.vocabulary import MODULE_BRINGS

if TYPE_CHECKING:
    from core.plan import Plan
    from core.request import Request


class Registry:
    """Every plugin that was found, broken ones included, and the answers about them.

    Args:
        found: what a scan returned; tests hand in their own.
        notes: what the scan has to say about the installed packages.
        turned_off: plugins that the user left out; asking for one says so.
    """

    def __init__(self, found: Sequence[Found], notes: Sequence[str] = (), turned_off: Sequence[Found] = ()) -> None:
        self.found = tuple(found)
        self.notes = tuple(notes)
        self.turned_off = tuple(turned_off)
        self._by_name: dict[tuple[Kind, str], list[Found]] = {}
        self._by_alias: dict[tuple[Kind, str], list[Found]] = {}
        for item in self.found:
            self._by_name.setdefault((item.kind, fold(item.name)), []).append(item)
            for alias in {fold(alias) for alias in _aliases(item)} - {fold(item.name)}:
                self._by_alias.setdefault((item.kind, alias), []).append(item)

    def of_kind(self, kind: Kind) -> list[Found]:
        """Return the plugins of ``kind``, broken ones included, in the order of their names."""
        return [item for item in self.found if item.kind == kind]

    def sound(self, kind: Kind) -> list[tuple[str, Declaration]]:
        """Return each plugin of ``kind`` that has a declaration, with the name that chooses it and no other."""
        return [(self.reference(item), item.declaration) for item in self.of_kind(kind) if item.declaration is not None]

    def declarations(self, kind: Kind) -> list[Declaration]:
        """Return the sound declarations of ``kind`` whose name no other distribution claims too."""
        return [item.declaration for item in self.of_kind(kind) if item.declaration and not self.rivals(item)]

    def names(self, kind: Kind) -> list[str]:
        """Return the names of ``kind`` that a request may use."""
        return sorted({self.reference(item) for item in self.of_kind(kind)})

    def rivals(self, item: Found) -> list[Found]:
        """Return the other plugins that claim the name of ``item``."""
        return [other for other in self._by_name[item.kind, fold(item.name)] if other is not item]

    def reference(self, item: Found) -> str:
        """Return the shortest spelling that chooses ``item`` and no other."""
        return f"{item.distribution}:{item.name}" if self.rivals(item) else item.name

    def lost_aliases(self, item: Found) -> dict[str, list[Found]]:
        """Return the aliases of ``item`` that do not choose it, with the plugins they belong to or are shared with."""
        lost = {}
        for alias in _aliases(item):
            key = item.kind, fold(alias)
            others = self._by_name.get(key) or self._by_alias.get(key, [])
            if any(other is not item for other in others):
                lost[alias] = [other for other in others if other is not item]
        return lost

    def find(self, kind: Kind, name: str) -> Found:
        """Return the plugin called ``name``, an alias of it, or ``"distribution:name"``.

        Raises:
            UnknownPlugin: with the nearest names.
            DuplicatePlugin: when several distributions claim the name.
            PluginBroken: when its declaration could not be read, the cause chained.
        """
        distribution, separator, bare = name.rpartition(":")
        key = kind, fold(bare)
        entries = self._by_name.get(key, [])
        if separator:
            named = [*entries, *self._by_alias.get(key, [])]
            entries = [entry for entry in named if normalize(entry.distribution) == normalize(distribution)]
        entries = entries or ([] if separator else self._by_alias.get(key, []))
        if not entries:
            raise self._unknown(kind, name)
        if len(entries) > 1:
            entries = sorted(entries, key=lambda entry: entry.distribution)
            raise DuplicatePlugin(kind, bare, [e.distribution for e in entries], list(map(self.reference, entries)))
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
        spellings = [spelling for item in self.of_kind(kind) for spelling in (item.name, *_aliases(item))]
        close = nearest(name, spellings)
        return UnknownPlugin(kind, name, known=self.names(kind), nearest=close, hint=self._hint(kind, name))

    def _hint(self, kind: Kind, name: str) -> str | None:
        key = fold(name)
        for item in self.turned_off:
            if item.kind == kind and key in (fold(item.name), fold(f"{item.distribution}:{item.name}")):
                return f"{item.distribution} has it, and {PLUGINS_VARIABLE} or {BLOCK_VARIABLE} turns it off"
        others = [other for other in KINDS if other != kind]
        named = [
            f"{name!r} names a plugin of another kind: pass it as {other}={name!r}"
            for other in others
            if (other, key) in self._by_name or (other, key) in self._by_alias
        ]
        # people once gave strategies as accelerators, so that a name of another kind may be meant
        hints = [
            *self._replacements(kind, key),
            *named,
            *(h for other in others for h in self._replacements(other, key)),
        ]
        return hints[0] if hints else None

    def _replacements(self, kind: Kind, key: str) -> list[str]:
        return [
            f"{old.name!r} is from elsewhere; write {old.write}"
            for declaration in self.declarations(kind)
            for old in declaration.replaces
            if fold(old.name) == key
        ]

    def resolve(self, request: Request) -> Plan:
        """Hold the declarations against each other and return the plan; changes nothing.

        Raises:
            UnknownPlugin, DuplicatePlugin, PluginBroken: as :meth:`find`.
            InvalidCombination: when a rule is broken, with all broken rules.
            PluginUnavailable: when it is valid but cannot run here.
        """
        from core.resolve import resolve  # the registry answers `list` without loading the planner

        return resolve(self, request)

    def valid_combinations(
        self, request: Party, within: dict[Kind, str], unknown: tuple[str, ...] = MODULE_BRINGS
    ) -> Iterator[Combination]:
        """Yield every combination of sound plugins that satisfies the rule, with the names in ``within`` fixed.

        ``unknown`` is as in :func:`core.rules.violations`.
        """
        for trio in self.parties(within):
            if not violations([*(party for _, party in trio), request], unknown):
                yield Combination(*(reference for reference, _ in trio))

    def parties(self, within: dict[Kind, str]) -> Iterator[tuple[tuple[str, Party], ...]]:
        """Yield each accelerator, precision and strategy side by side: the name that chooses it, and what it states."""
        pools = []
        for kind in KINDS:
            only = self.reference(self.find(kind, within[kind])) if kind in within else None
            pools.append([(ref, party_of(d)) for ref, d in self.sound(kind) if only in (None, ref)])
        yield from product(*pools)

    def can_run(self, combination: Combination) -> bool:
        """Tell whether all three plugins have their packages and hardware here."""
        from core.availability import reasons_against

        pairs = zip(KINDS, combination, strict=True)
        return not any(reasons_against(self._declaration(kind, name)) for kind, name in pairs)

    def _declaration(self, kind: Kind, name: str) -> Declaration:
        declaration = self.find(kind, name).declaration
        assert declaration is not None, "find() raises for a plugin without a declaration"
        return declaration


def _aliases(item: Found) -> tuple[str, ...]:
    return item.declaration.aliases if item.declaration else ()


@lru_cache(maxsize=1)
def get_registry() -> Registry:
    """Return this process's registry; the entry points are scanned at the first call only."""
    return Registry(*scan_with_notes())


if __name__ == "__main__":
    # `-m` runs this file a second time as __main__; hand over to the one real module, which plugins share
    from core.cli import main

    raise SystemExit(main())

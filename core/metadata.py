"""Read which distributions are installed and what entry points they state (torch-free, imports no plugin).

Metadata lies a little: an uninstall leaves an empty folder behind, an upgrade an old one beside the new.
The rule here is: a folder without METADATA does not count; of two records of one distribution that of an
installer counts before one that a build left beside its sources, then the one in the earlier folder of
``sys.path``, since that is the one an import would find, and within one folder the higher version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

import importlib_metadata

if TYPE_CHECKING:
    from typing import Protocol

    from packaging.version import Version

    class Distribution(Protocol):
        """What every provider's distributions have in common."""

        def read_text(self, filename: str) -> str | None: ...

        def locate_file(self, path: str) -> object: ...


_ENTRY_POINTS = "entry_points.txt"


class Point(NamedTuple):
    """One entry point, and the distribution that states it."""

    group: str
    name: str
    value: str
    distribution: str
    version: str


class Record(NamedTuple):
    """One metadata folder that names its distribution: where it lies and what it says."""

    name: str
    version: str
    folder: str
    entry_points: str
    installed: bool = True
    """False for an ``.egg-info``, which builds leave beside their sources and nobody renews."""


def normalize(distribution: str) -> str:
    """Return the form in which two spellings of one distribution are equal."""
    return re.sub(r"[-_.]+", "-", distribution.strip()).lower()


def read_points(groups: Collection[str]) -> tuple[list[Point], list[str]]:
    """Return every entry point of ``groups``, and a line on each metadata folder that was passed over."""
    first: dict[str, Record] = {}
    notes: list[str] = []
    for dist in importlib_metadata.distributions():
        text = _text(dist, _ENTRY_POINTS)
        if not any(group in text for group in groups):
            continue
        record = _record(dist, text)
        if record is None:
            notes.append(f"a metadata folder in {dist.locate_file('')} names no distribution and is passed over")
        else:
            first.setdefault(normalize(record.name), record)
    points: list[Point] = []
    for record in first.values():
        # the other records of this distribution, also those without entry points
        records, empty = _records(record.name)
        records = records or [record]
        best = _best(records)
        notes += [
            f"a metadata folder of {best.name} in {folder} is empty, as a broken uninstall leaves it, and is passed "
            "over; delete it"
            for folder in empty
        ]
        notes += [
            f"{best.name} is recorded twice: {best.version} in {best.folder} counts, {other.version} in "
            f"{other.folder}{'' if other.version != best.version else ', with other plugins,'} does not; reinstall it"
            for other in dict.fromkeys(records)
            if other.version != best.version or other.entry_points != best.entry_points
        ]
        found = (Point(*point, best.name, best.version) for point in _parse(best.entry_points))
        points += (point for point in dict.fromkeys(found) if point.group in groups)
    return points, notes


def installed_version(distribution: str) -> str | None:
    """Return the version of ``distribution`` that counts, or None where it is not installed."""
    records, _ = _records(distribution)
    return _best(records).version if records else None


def required_by_extra(distribution: str, extra: str) -> list[tuple[str, str]]:
    """Return name and versions of each distribution that ``distribution[extra]`` requires beside what it always does.

    What stands there in a form that cannot be read is left out: an installer would have refused it.
    """
    from packaging.markers import UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement  # only entry points with an extra pay for it

    found = []
    for line in importlib_metadata.requires(distribution) or ():
        try:
            requirement = Requirement(line)
            marker = requirement.marker
            wanted = marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})
        except (InvalidRequirement, UndefinedEnvironmentName):
            continue
        found += [(requirement.name, str(requirement.specifier))] if wanted else []
    return found


def _best(records: list[Record]) -> Record:
    records = [record for record in records if record.installed] or records
    rivals = [record for record in records if record.folder == records[0].folder]
    return max(rivals, key=lambda record: _version_key(record.version)) if len(rivals) > 1 else rivals[0]


def _version_key(version: str) -> Version:
    from packaging.version import InvalidVersion, Version  # only doubles pay for the import

    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")


def _records(name: str) -> tuple[list[Record], list[str]]:
    """Return the records of a distribution, and where metadata folders lie that carry its name and say nothing."""
    records, empty = [], []
    for dist in importlib_metadata.distributions(name=name):
        record = _record(dist, _text(dist, _ENTRY_POINTS))
        if record is not None:
            records.append(record)
        elif not _text(dist, _ENTRY_POINTS):  # one that has entry points is told of already
            empty.append(str(dist.locate_file("")))
    return records, empty


def _record(dist: Distribution, entry_points: str) -> Record | None:
    """Read name and version from the first lines of the metadata; the library would parse the whole message."""
    fields: dict[str, str] = {}
    installed = _text(dist, "METADATA")
    for line in _header(installed or _text(dist, "PKG-INFO")):
        key, _, value = line.partition(":")
        fields.setdefault(key.strip().lower(), value.strip())
    name = fields.get("name")
    if not name:
        return None
    return Record(name, fields.get("version", "0"), str(dist.locate_file("")), entry_points, bool(installed))


def _header(text: str) -> Iterable[str]:
    return text.partition("\n\n")[0].splitlines()


def _text(dist: Distribution, file: str) -> str:
    try:
        return dist.read_text(file) or ""
    except (OSError, UnicodeDecodeError):
        return ""  # a file that cannot be read says nothing


def _parse(text: str) -> Iterable[tuple[str, str, str]]:
    """Yield group, name and value of each line; a line without ``=`` has no value, which loading it then reports."""
    group = ""
    for line in (raw.strip() for raw in text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield group, name.strip(), value.strip()

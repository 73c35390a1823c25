"""Whether a plugin can run here: its packages, and for an accelerator its hardware (torch-free).

Nothing is imported and no device is opened to find out: packages are looked up in their metadata, and a
probe is a plain function of the accelerator's own torch-free package.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import importlib_metadata

from core.declarations import AcceleratorDeclaration, Availability, Declaration, Package
from core.discovery import OWN_DISTRIBUTION, PhaseError, load_object


def missing_packages(declaration: Declaration) -> list[str]:
    """Return one line for each required package that is missing, too old, or not what it claims to be."""
    reasons = (_package_problem(package) for package in declaration.packages)
    return [reason for reason in reasons if reason]


def _package_problem(package: Package) -> str | None:
    install = f'pip install "{OWN_DISTRIBUTION}[{package.extra}]"' if package.extra else f"pip install {package.name}"
    version = installed_version(package.name)
    if version is None:
        return f"package {package.name!r} is not installed; {install}"
    if package.versions and not _satisfies(version, package.versions):
        return f"package {package.name!r} {version} is installed, {package.versions} is needed; {install}"
    if package.module and not _has_module(package.module):
        return (
            f"package {package.name!r} {version} is installed but has no {package.module}: "
            "a different package of that name, or a version without it"
        )
    return None


@lru_cache(maxsize=None)
def installed_version(distribution: str) -> str | None:
    """Return the installed version of ``distribution``, or None."""
    try:
        return importlib_metadata.version(distribution)
    except importlib_metadata.PackageNotFoundError:
        return None


def _satisfies(version: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet  # only the few declarations with a version pay for it

    return SpecifierSet(specifier).contains(version, prereleases=True)


def _has_module(dotted: str) -> bool:
    """Look for ``package.module`` on disk: find_spec of a dotted name would import the package."""
    top, *rest = dotted.split(".")
    spec = find_spec(top)
    if spec is None:
        return False
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    return any((p / "/".join(rest)).is_dir() or (p / ("/".join(rest) + ".py")).is_file() for p in places)


@lru_cache(maxsize=None)
def probe(declaration: AcceleratorDeclaration) -> Availability:
    """Ask an accelerator how many devices it has here; asked once per process."""
    try:
        function = load_object(declaration.probe, "probe")
        answer = function() if callable(function) else None
    except PhaseError as error:
        return Availability(0, f"its probe is broken: {error.reason}")
    except (Exception, SystemExit) as error:
        return Availability(0, f"its probe failed: {type(error).__name__}: {error}")
    if not isinstance(answer, Availability):
        return Availability(0, f"its probe is broken: it returned {answer!r}, not an Availability")
    return answer


def reasons_against(declaration: Declaration) -> list[str]:
    """Return why the plugin cannot run here, one line each; empty when it can."""
    reasons = missing_packages(declaration)
    if not reasons and isinstance(declaration, AcceleratorDeclaration):
        answer = probe(declaration)
        if answer.count == 0:
            reasons.append(answer.reason or "no device found")
    return reasons

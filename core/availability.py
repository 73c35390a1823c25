"""Whether a plugin can run here: its packages, and for an accelerator its hardware (torch-free).

Nothing is imported and no device is opened to find out: packages are looked up in their metadata, and a
probe is a plain function of the accelerator's own torch-free package.
"""

from __future__ import annotations

from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec

from core import metadata
from core.declarations import AcceleratorDeclaration, Availability, Declaration, Package
from core.discovery import OWN_DISTRIBUTION, PhaseError, load_object
from core.wording import printable, shown, told

MOST_DEVICES = 2**31
"""A probe that counts more devices than this has miscounted."""

installed_version = cache(metadata.installed_version)
"""The installed version of a distribution, or None; looked up once per process."""


def missing_packages(declaration: Declaration) -> list[str]:
    """Return one line for each required package that is missing, too old, or not what it claims to be."""
    reasons = (package_problem(package) for package in declaration.packages)
    return [reason for reason in reasons if reason]


@cache
def package_problem(package: Package) -> str | None:
    """Return why ``package`` does not serve here, or None when it does."""
    extra = f'pip install "{OWN_DISTRIBUTION}[{package.extra}]"' if package.extra else f"pip install {package.name}"
    install = package.install or extra
    version = installed_version(package.name)
    if version is None:
        return f"package {package.name!r} is not installed; {install}"
    if package.versions and not _satisfies(version, package.versions):
        return f"package {package.name!r} {version} is installed, {package.versions} is needed; {install}"
    if package.module and not _has_module(package.module):
        what = "a different package of that name, or a version without it"
        if package.known_by:
            right = _has_module(package.known_by)
            what = "a release without it" if right else f"a different package called {package.name}"
        lacks = f"package {package.name!r} {version} is installed but has no {package.module}: {what}"
        return f"{lacks}; {package.install}" if package.install else lacks
    return None


def _satisfies(version: str, specifier: str) -> bool:
    # only the few declarations with a version pay for the import
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def _has_module(dotted: str) -> bool:
    """Look for ``package.module`` part by part: find_spec of a dotted name would import the package."""
    top, *rest = dotted.split(".")
    try:
        spec = find_spec(top)
        for part in rest:
            top = f"{top}.{part}"
            spec = PathFinder.find_spec(top, spec.submodule_search_locations) if spec is not None else None
    except (ImportError, ValueError):  # a module that is half imported has no spec
        return False
    return spec is not None


def probe(declaration: AcceleratorDeclaration) -> Availability:
    """Ask an accelerator how many devices it has here; asked once per process."""
    return run_probe(declaration.probe)


@cache
def run_probe(reference: str) -> Availability:
    """Call a probe, ``"module:function"``. What it raises and what it should not return become the reason."""
    try:
        function = load_object(reference, "probe")
        answer = function() if callable(function) else function
    except PhaseError as error:
        return Availability(0, f"its probe is broken: {error.reason}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Availability(0, f"its probe failed: {told(error)}")
    if not (isinstance(answer, Availability) and _is_count(answer.count) and isinstance(answer.reason, str)):
        wanted = "an Availability with a count and a reason in words"
        return Availability(0, f"its probe is broken: it returned {shown(answer)}, not {wanted}")
    answer = answer._replace(reason=printable(answer.reason))
    if answer.count is None and answer.reason:
        return Availability(0, answer.reason)  # a reason why there is none, whatever the default count says
    return answer


def _is_count(count: object) -> bool:
    return count is None or (isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST_DEVICES)


def reasons_against(declaration: Declaration) -> list[str]:
    """Return why the plugin cannot run here, one line each; empty when it can."""
    reasons = missing_packages(declaration)
    if not reasons and isinstance(declaration, AcceleratorDeclaration):
        answer = probe(declaration)
        if answer.count == 0:
            reasons.append(answer.reason or "no device found")
    return reasons

"""``doctor``: look at this machine, its packages and the plugins, and say what is wrong."""

from __future__ import annotations

import argparse
import platform
import sys
import warnings
from typing import NamedTuple

from core.cli.common import load_registry
from core.declarations import KINDS, AcceleratorDeclaration, Package
from core.discovery import OWN_DISTRIBUTION, Found
from core.errors import InvalidArgument
from core.metadata import installed_version
from core.registry import Registry
from core.vocabulary import meaning

EXAMPLES = """\
examples:
  python -m core.registry doctor
  python -m core.registry doctor --json
  python -m core.registry doctor --timeout 60    for a driver that is slow to answer

exits 0 when nothing is broken and at least one accelerator is ready, else 1
"""


_WIDEST = 30  # a longer subject stands out rather than push every text to the right


class Finding(NamedTuple):
    """One thing that was looked at. ``state`` is ready, unavailable, broken, conflict or note."""

    section: str
    subject: str
    state: str
    text: str
    detail: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``doctor``."""
    parser.add_argument("--json", action="store_true", help="print the findings as an object")
    parser.add_argument(
        "--timeout", type=float, default=20.0, metavar="S", help="seconds to wait for accelerators (default: 20)"
    )


def run(args: argparse.Namespace) -> int:
    """Print what was found; 0 when nothing is broken and an accelerator is ready."""
    registry = load_registry()
    findings = [
        *_basics(),
        *_accelerators(registry, args.timeout),
        *_own_packages(),
        *_packages(registry),
        *_plugins(registry),
        *(Finding("notes", "installed packages", "note", note) for note in registry.notes),
    ]
    well = _is_well(findings)
    if args.json:
        import json

        print(json.dumps({"ok": well, "findings": [finding._asdict() for finding in findings]}, indent=2))
    else:
        _print(findings, well)
    return 0 if well else 1


def _is_well(findings: list[Finding]) -> bool:
    ready = any(f.section == "accelerators" and f.state == "ready" for f in findings)
    return ready and not any(f.state == "broken" for f in findings)


def _basics() -> list[Finding]:
    from core.environments import detect_environment
    from core.session import session_token

    section = "this machine"
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    findings = [Finding(section, "python", "ready", python)]
    for name in (OWN_DISTRIBUTION, "torch"):
        version = installed_version(name)
        findings.append(Finding(section, name, "ready" if version else "broken", version or "is not installed"))
    try:
        with warnings.catch_warnings(record=True) as broken:
            warnings.simplefilter("always")
            environment = detect_environment()
        findings += [Finding(section, "launcher", "broken", str(each.message)) for each in broken]
        launcher = Finding(section, "launcher", "ready", f"{environment.name}: {environment.reason}")
    except InvalidArgument as error:
        launcher = Finding(section, "launcher", "broken", str(error))
    token = session_token()
    return [*findings, launcher, Finding(section, "session", "ready", f"{token}: {meaning(token)}")]


def _accelerators(registry: Registry, timeout: float) -> list[Finding]:
    from core.availability import missing_packages
    from core.cli.probe_child import run_probes

    declarations = {
        name: declaration
        for name, declaration in registry.sound("accelerator")
        if isinstance(declaration, AcceleratorDeclaration)
    }
    missing = {name: missing_packages(declaration) for name, declaration in declarations.items()}
    probed = {name: declaration.probe for name, declaration in declarations.items() if not missing[name]}
    answers = run_probes(probed, timeout)
    findings = []
    for name in declarations:
        if name not in answers:
            finding = Finding("accelerators", name, "unavailable", "; ".join(missing[name]))
        elif answers[name].count == 0:
            finding = Finding("accelerators", name, "unavailable", answers[name].reason or "no device found")
        else:
            count = answers[name].count
            number = "no fixed number of devices" if count is None else f"{count} device{'s' if count != 1 else ''}"
            finding = Finding("accelerators", name, "ready", number)
        findings.append(finding)
    return findings


def _own_packages() -> list[Finding]:
    """Check what this distribution itself requires, extras left out."""
    import importlib_metadata
    from packaging.requirements import Requirement

    from core.availability import package_problem

    findings = []
    own = importlib_metadata.requires(OWN_DISTRIBUTION) if installed_version(OWN_DISTRIBUTION) else None
    for requirement in map(Requirement, own or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            package = Package(requirement.name, str(requirement.specifier))
            findings.append(_package_finding(OWN_DISTRIBUTION, package, package_problem(package), "broken"))
    return findings


def _package_finding(subject: str, package: Package, problem: str | None, otherwise: str) -> Finding:
    fine = f"{package.name} {installed_version(package.name)} {package.versions and f'({package.versions})'}".rstrip()
    return Finding("packages", subject, otherwise if problem else "ready", problem or fine)


def _packages(registry: Registry) -> list[Finding]:
    from core.availability import package_problem

    findings = []
    for kind in KINDS:
        for name, declaration in registry.sound(kind):
            for package in declaration.packages:
                problem = package_problem(package)
                findings.append(_package_finding(f"{kind} {name}", package, problem, "unavailable"))
    return findings


def _plugins(registry: Registry) -> list[Finding]:
    findings = []
    for item in registry.found:
        subject = f"{item.kind} {item.name} from {item.distribution} {item.version}"
        if item.failure is not None:
            text = f"while: {item.failure.phase}, reason: {item.failure.reason}"
            findings.append(Finding("plugins", subject, "broken", text, _traceback(item)))
        rivals = registry.rivals(item)
        if rivals:
            others = ", ".join(f"{other.distribution} {other.version}" for other in rivals)
            findings.append(Finding("plugins", subject, "conflict", f"{others} claims this name too"))
        for alias, others_ in registry.lost_aliases(item).items():
            owners = ", ".join(f"{other.name} of {other.distribution}" for other in others_)
            findings.append(Finding("plugins", subject, "note", f"alias {alias!r} does not choose it: {owners}"))
    sound = sum(item.declaration is not None for item in registry.found)
    off = f", {len(registry.turned_off)} turned off" if registry.turned_off else ""
    return [Finding("plugins", "declarations", "ready", f"{sound} of {len(registry.found)} sound{off}"), *findings]


def _traceback(item: Found) -> str:
    """Return the traceback from the plugin's own first line on; how we came to import it tells nobody anything."""
    import importlib
    import traceback

    error = item.failure.error if item.failure else None
    if error is None:
        return ""
    report = traceback.TracebackException.from_exception(error)
    ours = ("<frozen importlib", importlib.__file__, __file__.rpartition("cli")[0])
    stack = enumerate(report.stack)
    first = next((i for i, frame in stack if not frame.filename.startswith(ours)), len(report.stack))
    del report.stack[:first]
    return "".join(report.format()).rstrip()


def _print(findings: list[Finding], well: bool) -> None:
    width = max(len(finding.subject) for finding in findings if len(finding.subject) <= _WIDEST)
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            print(section)
        state = "" if finding.state in ("ready", "note") and section == "this machine" else f"{finding.state}: "
        print(f"  {finding.subject:<{width}}  {state}{finding.text}")
        for line in finding.detail.splitlines():
            print(f"      {line}")
    print("all is well: nothing is broken and an accelerator is ready" if well else _verdict(findings))


def _verdict(findings: list[Finding]) -> str:
    broken = [finding.subject for finding in findings if finding.state == "broken"]
    return f"broken: {', '.join(broken)}" if broken else "no accelerator is ready"

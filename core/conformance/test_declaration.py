"""What a plugin states about itself."""

from __future__ import annotations

from core.conformance import look
from core.conformance.checks import cannot_judge, check, lacks
from core.conformance.setup import Setup
from core.declarations import AcceleratorDeclaration, Declaration, Kind, Package
from core.discovery import Found


@check()
def test_declaration_is_torch_free(kind: Kind, found: Found) -> None:
    """Reading the declaration in a fresh process succeeds and does not import torch."""
    seen = look.ask("declaration", found.value)
    if "error" in seen:
        lacks(seen["error"])
    if seen["torch"]:
        lacks(f"importing {found.value} imports torch; import it in the implementation only")


@check()
def test_implementation_binds(kind: Kind, setup: Setup) -> None:
    """The implementation is imported, owns each hook of its kind, and wraps what it declares, with known arguments."""
    seen = look.ask("implementation", *setup.names)
    if "error" in seen:
        lacks(seen["error"])
    if seen.get("kind") == kind:
        lacks(f"{seen['phase']}: {seen['reason']}")
    if "kind" in seen:
        cannot_judge(f"the {seen['kind']} is broken: {seen['reason']}")


@check()
def test_options_are_those_of_the_constructor(kind: Kind, setup: Setup) -> None:
    """Each declared option has the default that the constructor has, and an instance keeps it as an attribute."""
    seen = look.ask("implementation", *setup.names)
    if "options" not in seen:
        cannot_judge("the implementation does not bind")
    if seen["options"][kind]:
        lacks("; ".join(seen["options"][kind]))


@check()
def test_packages_are_named_once(kind: Kind, declaration: Declaration) -> None:
    """Each required package is named once, so that a missing one is told once."""
    names = [package.name for package in declaration.packages]
    twice: list[Package] = [package for package in declaration.packages if names.count(package.name) > 1]
    if twice:
        lacks(f"{', '.join(sorted({package.name for package in twice}))} named more than once")


@check("accelerator")
def test_probe_opens_no_device(kind: Kind, declaration: Declaration, found: Found) -> None:
    """The probe answers with a number or a reason, imports no torch and leaves no device open."""
    assert isinstance(declaration, AcceleratorDeclaration), "the registry holds each kind to its class"
    seen = look.ask("declaration", found.value, declaration.probe)
    if "error" in seen:
        lacks(seen["error"])
    answer = seen["probe"]
    if "its probe" in answer["reason"]:  # how the registry words what a probe raised or should not have returned
        lacks(answer["reason"])
    if answer["torch"]:
        lacks(f"{declaration.probe} imports torch")
    if answer["opened"]:
        lacks(f"{declaration.probe} leaves {', '.join(answer['opened'])} open")

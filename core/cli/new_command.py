"""``new``: write a small package with a plugin that installs, is listed, trains, and passes its own tests."""

from __future__ import annotations

import argparse
import keyword
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from string import Template
from typing import NamedTuple

from core.cli.common import load_registry
from core.declarations import API, KINDS, Kind
from core.discovery import GROUPS
from core.errors import InvalidArgument, UnknownPlugin

EXAMPLES = """\
examples:
  python -m core.registry new strategy my_strategy
  python -m core.registry new accelerator vendor_x --path plugins
  python -m core.registry new precision fp8-simulated --package fp8_for_interlock
"""
TEMPLATES = Path(__file__).with_name("templates")
FILES = {
    "pyproject.toml": "common/pyproject.toml",
    "README.md": "common/README.md",
    "{package}/__init__.py": "{kind}/declaration.py",
    "{package}/{kind}.py": "{kind}/implementation.py",
    "tests/test_{package}_declaration.py": "common/declaration_test.py",
    "tests/test_{package}_training.py": "{kind}/training_test.py",
    "tests/job.py": "{kind}/job.py",
}
"""What is written, and from which template; a template that a kind does not have is left out."""
_NAME = re.compile(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*\Z")
_PACKAGE = re.compile(r"[a-z][a-z0-9_]*\Z")


class Wanted(NamedTuple):
    """What is to be written."""

    kind: Kind
    name: str
    package: str

    @property
    def distribution(self) -> str:
        """The name that pip knows the package by."""
        return self.package.replace("_", "-")

    @property
    def class_name(self) -> str:
        """The name of the implementation."""
        joined = "".join(part.capitalize() for part in re.split(r"[-_.]", self.name))
        return joined if joined.endswith(self.kind.capitalize()) else joined + self.kind.capitalize()


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``new``."""
    parser.add_argument("kind", choices=KINDS, help="what the plugin is")
    parser.add_argument("name", help="what people write in Trainer(...), such as my_strategy")
    parser.add_argument(
        "--path", type=Path, default=Path(), metavar="DIR", help="where the folder goes (default: here)"
    )
    parser.add_argument("--package", help="the name to import it by (default: interlock_NAME)")


def run(args: argparse.Namespace) -> int:
    """Write the package and say what to do next."""
    package = args.package or "interlock_" + re.sub(r"[-.]", "_", args.name)
    wanted = Wanted(args.kind, args.name, package)
    _check_names(wanted)
    folder: Path = args.path / wanted.distribution
    if os.path.lexists(folder):  # a name that is too long for the system is none that exists
        raise InvalidArgument(f"{folder} exists already; choose another --package or --path")
    _refuse_known(wanted)
    try:
        _write(folder, _render(wanted))
    except OSError as error:
        raise InvalidArgument(f"cannot write {folder}: {error.strerror or error}") from error
    print(
        f"{folder} holds the {wanted.kind} {wanted.name!r}; next:\n"
        f"  pip install -e {folder}\n"
        f"  python -m core.registry explain --{wanted.kind} {wanted.name}\n"
        f"  python -m pytest {folder}"
    )
    return 0


def _check_names(wanted: Wanted) -> None:
    if not _NAME.match(wanted.name) or wanted.name == "auto":
        raise InvalidArgument(
            f"{wanted.name!r} cannot be a plugin's name: lower-case letters and digits, joined by '_', '-' or '.', "
            "beginning with a letter, and not 'auto'"
        )
    package = wanted.package
    if not _PACKAGE.match(package) or keyword.iskeyword(package):
        raise InvalidArgument(f"{package!r} cannot be imported: lower-case letters, digits and '_', no keyword")
    taken = {*sys.stdlib_module_names, *sys.builtin_module_names, __package__.partition(".")[0], "tests", "torch"}
    if package in taken:
        raise InvalidArgument(f"a package called {package!r} would hide another of that name; choose another --package")


def _refuse_known(wanted: Wanted) -> None:
    registry = load_registry()
    try:
        found = registry.find(wanted.kind, wanted.name)
    except UnknownPlugin:
        return
    whose = f"{found.distribution} {found.version}"
    raise InvalidArgument(f"{wanted.kind} {wanted.name!r} is there already, from {whose}; choose another name")


def _render(wanted: Wanted) -> dict[str, str]:
    """Return the text of each file by its path."""
    names = {
        **wanted._asdict(),
        "distribution": wanted.distribution,
        "class_name": wanted.class_name,
        "module": wanted.kind,
        "group": next(group for group, kind in GROUPS.items() if kind == wanted.kind),
        "api": str(API),
    }
    rendered = {}
    for target, template in FILES.items():
        source = TEMPLATES / f"{template.format(kind=wanted.kind)}.tmpl"
        if source.exists():
            path = target.format(package=wanted.package, kind=wanted.kind)
            rendered[path] = Template(source.read_text()).substitute(names)
    return rendered


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write all files or none: beside the folder first, then in one move."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
        whole = Path(beside, folder.name)
        for path, text in files.items():
            target = whole / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        shutil.move(whole, folder)

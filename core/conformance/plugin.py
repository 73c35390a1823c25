"""The pytest plugin: adds the kit's options when a command line asks for the kit, and nothing otherwise.

It is loaded by every pytest that runs where Interlock is installed. So it imports neither torch nor the registry,
and leaves names such as ``--devices`` to whoever else wants them, until ``core.conformance`` is on the command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

PACKAGE = "core.conformance"
FOLDER = Path(__file__).parent
EXAMPLE = "pytest --pyargs core.conformance --strategy its_name --accelerator NAME"
KINDS = ("strategy", "accelerator", "precision")


def is_asked(arguments: Sequence[str], folder: Path) -> bool:
    """Tell whether a command line names this package, or a file in it; ``folder`` is where it was given."""
    for argument in arguments:
        name = argument.split("::")[0]
        if name == PACKAGE or name.startswith(f"{PACKAGE}."):
            return True
        if not argument.startswith("-") and FOLDER in ((path := (folder / name).resolve()), *path.parents):
            return True
    return False


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    yield
    if is_asked(args, early_config.invocation_params.dir):
        _add_options(parser)


def _add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("interlock", f"interlock: hold a plugin to its declaration; example: {EXAMPLE}")
    try:
        for kind in KINDS:
            group.addoption(
                f"--{kind}",
                dest=f"interlock_{kind}",
                metavar="NAME",
                help=f"the {kind} to check; where it is left out, one is chosen and not checked itself",
            )
        group.addoption(
            "--devices",
            dest="interlock_devices",
            metavar="N",
            type=int,
            help="devices to train on; by default 2 where the strategy claims devices.many, else 1",
        )
        group.addoption(
            "--option",
            dest="interlock_options",
            metavar="NAME=VALUE",
            action="append",
            default=[],
            help="an option of a checked plugin for all runs; may be given several times",
        )
        group.addoption(
            "--tolerance",
            dest="interlock_tolerance",
            metavar="X",
            type=float,
            help="largest difference from the reference; by default it follows from the number formats",
        )
    except (ValueError, argparse.ArgumentError) as error:  # pytest 8 and 9
        raise pytest.UsageError(
            f"a conftest.py or another plugin has an option of the same name: {error}; run the kit from another folder"
        ) from error


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config.option, "interlock_strategy") or config.option.help:
        return
    names = {kind: name for kind in KINDS if (name := config.getoption(f"interlock_{kind}"))}
    if not names:
        raise pytest.UsageError(f"name the plugin to check with --strategy, --accelerator or --precision\n{EXAMPLE}")
    from core.conformance import session  # only now: it reads every declaration

    session.start(config, names)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Keep the checks out of runs that come by here without asking for them, such as ``pytest .``."""
    return True if collection_path == FOLDER and not hasattr(config.option, "interlock_strategy") else None

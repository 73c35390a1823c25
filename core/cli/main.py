"""Read the command line and hand over to one command.

Each command is a module of its own with ``SUMMARY``, ``EXAMPLE``, ``configure(parser)`` and ``run(args)``. Only the
module of the command that was named is imported, so that ``list`` does not pay for ``doctor``.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from core import __version__
from core.errors import InterlockError

COMMANDS = {
    "list": "show the installed plugins and whether they can run here",
    "explain": "show the plan for a combination, or why it cannot work",
    "matrix": "show every accelerator x precision x strategy",
    "doctor": "check this machine, its packages and the plugins",
    "new": "write a small package with a plugin of your own",
}
"""Name and summary of each command; ``core.cli.<name>_command`` holds it."""

EPILOG = "python -m core.registry <command> --help shows the options of a command, with examples"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 the answer is no or an error, 2 wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _make_parser(arguments)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stop:  # argparse has printed the help or the error
        return int(stop.code or 0)
    if args.command is None:
        parser.print_help()
        return 0
    return _run(args)


def _run(args: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a reason may hold what the terminal cannot show
    try:
        code: int = args.run(args)
        sys.stdout.flush()  # here, where a closed pipe can still be caught
    except InterlockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # the reader (`| head`) has seen enough; Python would complain once more when it closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"error: the answer cannot be written: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail once more at the end
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 2
    return code


def _make_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m core.registry",
        description="Interlock: look at the plugins and at what works with what, without importing torch.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"interlock {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="<command>")
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the line breaks of the examples
            allow_abbrev=False,
        )
        if name in arguments:
            module = import_module(f"core.cli.{name}_command")
            module.configure(sub)
            sub.set_defaults(run=module.run)
            sub.epilog = module.EXAMPLES
    return parser

"""The command line: ``python -m core.registry`` and ``interlock``."""

from core.cli.main import main

__all__ = ["main"]

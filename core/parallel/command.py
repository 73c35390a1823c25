"""How this program was started, so that it can be started again."""

from __future__ import annotations

import os
import sys

from core.session import START_FOLDER


def script_arguments() -> list[str]:
    """Return what follows the interpreter to run this program again: its options, ``-m``, script and arguments.

    The script's own path is written out in full, since the program may have changed its folder meanwhile.
    """
    arguments = list(sys.orig_argv[1:])
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path and sys.argv and sys.argv[0] in arguments:
        given = arguments.index(sys.argv[0])
        arguments[given] = os.path.abspath(os.path.join(START_FOLDER, path))
    return arguments

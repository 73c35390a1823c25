"""Which launcher started this process: ours, one of the installed environments, or none (torch-free)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from core.discovery import BLOCK_VARIABLE, PhaseError, load_object
from core.errors import InterlockError
from core.session import LaunchEnvironment, no_launcher, own_environment
from core.wording import shown, told

if TYPE_CHECKING:
    from core.discovery import Found


def detect_environment(environ: Mapping[str, str] | None = None) -> LaunchEnvironment:
    """Find out who started this process; nothing but the environment is looked at.

    Every installed environment has to be asked, whoever brings it. One that fails to answer is told in a warning, and
    the others are asked.

    Raises:
        InvalidArgument: when a launcher's variables contradict each other.
    """
    env = os.environ if environ is None else environ
    own = own_environment(env)
    if own is not None:
        return own
    from core.registry import get_registry  # the registry resolves requests, and a request asks for the environment

    ranked = sorted(
        (found for found in get_registry().of_kind("environment") if found.declaration is not None),
        key=lambda found: (-found.declaration.preference, found.name) if found.declaration else (0, found.name),
    )
    around: list[LaunchEnvironment] = []  # launchers that are there, but did not start this process
    for found in ranked:
        try:
            answer = _ask(found, env)
        except PhaseError as error:
            warnings.warn(
                f"environment {found.name!r} from {found.distribution} {found.version} is broken, so nobody knows "
                f"whether it started this process; while {error.phase}: {error.reason}\n"
                f"  hint: {BLOCK_VARIABLE}={found.distribution} silences this",
                UserWarning,
                stacklevel=2,
            )
            continue
        if answer is not None and answer.ranks is not None:
            return answer
        around += [answer] if answer is not None else []
    return around[0] if around else no_launcher(env)


def _ask(found: Found, env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return the answer of an installed environment.

    Raises:
        InterlockError: what it raises on purpose.
        PhaseError: when its own code fails, the cause chained.
    """
    assert found.declaration is not None, "only sound ones are asked"
    detect = load_object(found.declaration.implementation, "import of the implementation")
    try:
        answer: object = detect(env)  # type: ignore[operator]  # what cannot be called fails like the rest
    except (InterlockError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit too: looking who started the program must not end it
        raise PhaseError("detection", told(error)) from error
    if answer is None or isinstance(answer, LaunchEnvironment):
        return answer
    raise PhaseError("detection", f"it returned {shown(answer)}, and a LaunchEnvironment or None belongs there")

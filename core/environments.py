"""Which launcher started this process: ours, one of the installed environments, or none (torch-free)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from core.discovery import PhaseError, load_object
from core.errors import PluginBroken
from core.session import LaunchEnvironment, no_launcher, own_environment


def detect_environment(environ: Mapping[str, str] | None = None) -> LaunchEnvironment:
    """Find out who started this process; nothing but the environment is looked at.

    Raises:
        InvalidArgument: when a launcher's variables contradict each other.
        PluginBroken: when an installed environment fails to answer.
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
    told: list[LaunchEnvironment] = []  # by launchers that are around, but did not start this process
    for found in ranked:
        assert found.declaration is not None, "sorted out above"
        try:
            detect = load_object(found.declaration.implementation, "import of the implementation")
        except PhaseError as error:
            where = f"{found.distribution} {found.version}"
            raise PluginBroken(
                "environment", found.name, distribution=where, phase=error.phase, reason=error.reason
            ) from error.__cause__
        answer = detect(env) if callable(detect) else None
        if isinstance(answer, LaunchEnvironment):
            if answer.ranks is not None:
                return answer
            told.append(answer)
    return told[0] if told else no_launcher(env)

"""Recognise a process that torchrun started."""

from __future__ import annotations

from collections.abc import Mapping

from core.session import LAUNCHER_SET, LaunchEnvironment, read_ranks, whole_variable


def detect(env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return the launcher if its whole set of variables is there; a part of it proves nothing.

    Raises:
        InvalidArgument: when a variable does not hold a whole number, or two contradict each other.
    """
    if any(name not in env for name in LAUNCHER_SET):
        return None
    who = "torchrun" if "TORCHELASTIC_RUN_ID" in env else "a launcher that sets RANK and WORLD_SIZE"
    return LaunchEnvironment(
        "torchrun",
        f"started by {who} (WORLD_SIZE={env['WORLD_SIZE']})",
        read_ranks(env),
        env["MASTER_ADDR"],
        whole_variable(env, "MASTER_PORT"),
        ("launched.external", "launched.torchrun"),
    )

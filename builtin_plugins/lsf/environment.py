"""Recognise a process that jsrun of LSF started."""

from __future__ import annotations

from collections.abc import Mapping

from core.session import LaunchEnvironment, Ranks, whole_variable

NEEDED = ("LSB_JOBID", "LSB_DJOB_RANKFILE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK")
FIRST_PORT, PORTS = 10000, 1000


def detect(env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return LSF if the whole set of jsrun's variables is there.

    The rank file names a host for each slot, the first line being the one that the job was submitted from: rank 0
    is on the host of the second line.
    """
    if any(name not in env for name in NEEDED):
        return None
    with open(env["LSB_DJOB_RANKFILE"]) as file:
        hosts = [line.strip() for line in file if line.strip()]
    workers = list(dict.fromkeys(hosts[1:] or hosts))
    world = whole_variable(env, "JSM_NAMESPACE_SIZE")
    local_world = max(1, world // len(workers))
    rank = whole_variable(env, "JSM_NAMESPACE_RANK")
    job = whole_variable(env, "LSB_JOBID")
    return LaunchEnvironment(
        "lsf",
        f"started by LSF job {job} (JSM_NAMESPACE_SIZE={world})",
        Ranks(rank, whole_variable(env, "JSM_NAMESPACE_LOCAL_RANK"), rank // local_world, world, local_world),
        env.get("MASTER_ADDR") or workers[0],
        whole_variable(env, "MASTER_PORT", FIRST_PORT + job % PORTS),
        ("launched.external", "launched.lsf"),
    )

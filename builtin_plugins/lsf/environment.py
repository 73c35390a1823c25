"""Recognise a process that jsrun of LSF started."""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import InvalidArgument
from core.session import LaunchEnvironment, Ranks, refuse_beyond, whole_variable

NEEDED = ("LSB_JOBID", "LSB_DJOB_RANKFILE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK")
FIRST_PORT, PORTS = 10000, 1000


def detect(env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return LSF if the whole set of jsrun's variables is there.

    jsrun says how many processes there are, but not how many on each host: they are taken to fill the job's hosts.

    Raises:
        InvalidArgument: when the rank file cannot be read, or two variables contradict each other.
    """
    if any(name not in env for name in NEEDED):
        return None
    job, world = whole_variable(env, "LSB_JOBID"), whole_variable(env, "JSM_NAMESPACE_SIZE")
    rank, local = whole_variable(env, "JSM_NAMESPACE_RANK"), whole_variable(env, "JSM_NAMESPACE_LOCAL_RANK")
    refuse_beyond("JSM_NAMESPACE_RANK", rank, "JSM_NAMESPACE_SIZE", world)
    workers = _workers(env["LSB_DJOB_RANKFILE"])
    local_world = max(1, world // len(workers))
    if not 0 <= local < local_world:
        raise InvalidArgument(
            f"jsrun started {world} processes (JSM_NAMESPACE_SIZE) on the {len(workers)} hosts of LSB_DJOB_RANKFILE, "
            f"which makes {local_world} on each, but this one is JSM_NAMESPACE_LOCAL_RANK={local}\n"
            "  hint: give jsrun as many processes on every host of the job"
        )
    return LaunchEnvironment(
        "lsf",
        f"started by LSF job {job} (JSM_NAMESPACE_SIZE={world})",
        Ranks(rank, local, rank // local_world, world, local_world),
        env.get("MASTER_ADDR") or workers[0],
        whole_variable(env, "MASTER_PORT", FIRST_PORT + job % PORTS),
        ("launched.external", "launched.lsf"),
    )


def _workers(rank_file: str) -> list[str]:
    """Return the hosts that work, rank 0's first.

    The file names a host for each slot; its first line is the host that the job was submitted from, where no task is.
    """
    try:
        with open(rank_file) as file:
            hosts = [line.strip() for line in file if line.strip()]
    except OSError as error:
        raise InvalidArgument(f"LSB_DJOB_RANKFILE={rank_file!r} cannot be read: {error.strerror}") from error
    if not hosts:
        raise InvalidArgument(f"LSB_DJOB_RANKFILE={rank_file!r} names no host")
    return list(dict.fromkeys(hosts[1:] or hosts))

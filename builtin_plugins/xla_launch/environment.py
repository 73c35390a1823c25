"""Recognise a process that a program's own torch_xla.launch started."""

from __future__ import annotations

from collections.abc import Mapping

from core.session import LaunchEnvironment, Ranks, refuse_beyond, whole_variable

COUNT, RANK = "PJRT_LOCAL_PROCESS_COUNT", "PJRT_LOCAL_PROCESS_RANK"
HOSTS, HOST = "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID"


def detect(env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return XLA for one of several processes on this host; alone, a process may have the same variables.

    The runtime starts as many processes on each host, and the cloud names the hosts in their order.

    Raises:
        InvalidArgument: when a variable does not hold a whole number, or two contradict each other.
    """
    if COUNT not in env or RANK not in env:
        return None
    local, local_world = whole_variable(env, RANK), whole_variable(env, COUNT)
    refuse_beyond(RANK, local, COUNT, local_world)
    if local_world == 1:
        return None
    hosts = [host for host in env.get(HOSTS, "").split(",") if host] or ["127.0.0.1"]
    host = whole_variable(env, HOST, 0)
    refuse_beyond(HOST, host, f"the number of {HOSTS}", len(hosts))
    return LaunchEnvironment(
        "xla",
        f"started by torch_xla.launch ({COUNT}={local_world})",
        Ranks(host * local_world + local, local, host, len(hosts) * local_world, local_world),
        hosts[0],
        tokens=("launched.external", "launched.xla"),
    )

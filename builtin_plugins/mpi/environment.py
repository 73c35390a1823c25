"""Recognise a process that mpirun of Open MPI started."""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import InvalidArgument
from core.session import LaunchEnvironment, Ranks, refuse_beyond, whole_variable

DEFAULT_PORT = 29500


def detect(env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return Open MPI if its variables are there.

    Raises:
        InvalidArgument: when several nodes take part and nobody says where rank 0 is, or two variables contradict.
    """
    if "OMPI_COMM_WORLD_RANK" not in env or "OMPI_COMM_WORLD_SIZE" not in env:
        return None
    world = whole_variable(env, "OMPI_COMM_WORLD_SIZE")
    local_world = whole_variable(env, "OMPI_COMM_WORLD_LOCAL_SIZE", world)
    rank = whole_variable(env, "OMPI_COMM_WORLD_RANK")
    local = whole_variable(env, "OMPI_COMM_WORLD_LOCAL_RANK", rank)
    refuse_beyond("OMPI_COMM_WORLD_RANK", rank, "OMPI_COMM_WORLD_SIZE", world)
    refuse_beyond("OMPI_COMM_WORLD_LOCAL_RANK", local, "OMPI_COMM_WORLD_LOCAL_SIZE", local_world)
    if world > local_world and "MASTER_ADDR" not in env:
        raise InvalidArgument(
            f"mpirun started {world} processes (OMPI_COMM_WORLD_SIZE), {local_world} of them here, and MASTER_ADDR, "
            "the address of rank 0, is not set\n  hint: mpirun -x MASTER_ADDR=... -x MASTER_PORT=..."
        )
    return LaunchEnvironment(
        "mpi",
        f"started by mpirun (OMPI_COMM_WORLD_SIZE={world})",
        Ranks(rank, local, rank // local_world, world, local_world),
        env.get("MASTER_ADDR", "127.0.0.1"),
        whole_variable(env, "MASTER_PORT", DEFAULT_PORT),
        ("launched.external", "launched.mpi"),
    )

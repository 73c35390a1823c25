"""Recognise a pod of a PyTorchJob."""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import InvalidArgument
from core.session import LaunchEnvironment, Ranks, refuse_beyond, whole_variable

NEEDED = ("KUBERNETES_PORT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def detect(env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return Kubeflow for a pod that was given RANK and WORLD_SIZE but no LOCAL_RANK: there is one process in it.

    The operator also sets torchrun's own variables (``PET_NNODES`` and its like). In a pod that has only those, and in
    one with several processes, torchrun has to start them.

    Raises:
        InvalidArgument: when the pod is meant for several processes, or two variables contradict each other.
    """
    if "LOCAL_RANK" in env or "KUBERNETES_PORT" not in env:
        return None
    if any(name not in env for name in NEEDED):
        nodes = env.get("PET_NNODES", "1")
        pod = f"in a pod of a Kubeflow job (PET_NNODES={nodes}); torchrun starts its processes"
        return None if nodes == "1" else LaunchEnvironment("none", pod)
    rank, world = whole_variable(env, "RANK"), whole_variable(env, "WORLD_SIZE")
    refuse_beyond("RANK", rank, "WORLD_SIZE", world)
    per_pod = env.get("PET_NPROC_PER_NODE", "1")
    if per_pod.isdigit() and int(per_pod) > 1:
        raise InvalidArgument(
            f"this pod of a PyTorchJob is to have {per_pod} processes (PET_NPROC_PER_NODE) of WORLD_SIZE={world}, but "
            "its command has started one\n  hint: let the pod run torchrun, which reads these variables"
        )
    return LaunchEnvironment(
        "kubeflow",
        f"started as a pod of a PyTorchJob (WORLD_SIZE={world})",
        Ranks(rank, 0, rank, world, 1),
        env["MASTER_ADDR"],
        whole_variable(env, "MASTER_PORT"),
        ("launched.external", "launched.kubeflow"),
    )

"""Recognise a pod of a PyTorchJob."""

from __future__ import annotations

from collections.abc import Mapping

from core.session import LaunchEnvironment, Ranks, whole_variable

NEEDED = ("KUBERNETES_PORT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def detect(env: Mapping[str, str]) -> LaunchEnvironment | None:
    """Return Kubeflow for a pod that was given RANK and WORLD_SIZE but no LOCAL_RANK: there is one process in it."""
    if any(name not in env for name in NEEDED) or "LOCAL_RANK" in env:
        return None
    rank, world = whole_variable(env, "RANK"), whole_variable(env, "WORLD_SIZE")
    return LaunchEnvironment(
        "kubeflow",
        f"started as a pod of a PyTorchJob (WORLD_SIZE={world})",
        Ranks(rank, 0, rank, world, 1),
        env["MASTER_ADDR"],
        whole_variable(env, "MASTER_PORT"),
        ("launched.external", "launched.kubeflow"),
    )

"""Kubeflow: one process per pod of a PyTorchJob."""

from core.declarations import API, EnvironmentDeclaration

DECLARATION = EnvironmentDeclaration(
    name="kubeflow",
    summary="a PyTorchJob of Kubeflow's training operator, one process per pod",
    implementation="builtin_plugins.kubeflow.environment:detect",
    api=API,
    provides=("launched.external", "launched.kubeflow"),
    preference=60,
)

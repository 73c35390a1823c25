"""SLURM: processes that srun started."""

from core.declarations import API, EnvironmentDeclaration

DECLARATION = EnvironmentDeclaration(
    name="slurm",
    summary="SLURM's srun, one task per process",
    implementation="builtin_plugins.slurm.environment:detect",
    api=API,
    provides=("launched.external", "launched.slurm"),
    preference=90,
)

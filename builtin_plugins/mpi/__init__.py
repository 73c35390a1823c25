"""Open MPI: processes that mpirun started."""

from core.declarations import API, EnvironmentDeclaration

DECLARATION = EnvironmentDeclaration(
    name="mpi",
    summary="Open MPI's mpirun",
    implementation="builtin_plugins.mpi.environment:detect",
    api=API,
    provides=("launched.external", "launched.mpi"),
    preference=70,
)

"""XLA: processes that torch_xla.launch started."""

from core.declarations import API, EnvironmentDeclaration

DECLARATION = EnvironmentDeclaration(
    name="xla",
    summary="torch_xla.launch in the program itself",
    implementation="builtin_plugins.xla_launch.environment:detect",
    api=API,
    provides=("launched.external", "launched.xla"),
    preference=65,
)

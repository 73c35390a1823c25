"""LSF: processes that jsrun started."""

from core.declarations import API, EnvironmentDeclaration

DECLARATION = EnvironmentDeclaration(
    name="lsf",
    summary="LSF's jsrun",
    implementation="builtin_plugins.lsf.environment:detect",
    api=API,
    provides=("launched.external", "launched.lsf"),
    preference=80,
)

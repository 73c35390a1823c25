"""Everything in float32."""

from core.declarations import API, PrecisionDeclaration

DECLARATION = PrecisionDeclaration(
    name="32-true",
    summary="weights and arithmetic in float32",
    implementation="builtin_plugins.fp32.precision:Float32Precision",
    api=API,
    aliases=("32", "fp32", "float32"),
    preference=100,
)

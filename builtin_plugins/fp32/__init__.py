"""Everything in float32."""

from core.declarations import API, PrecisionDeclaration, Replaces

DECLARATION = PrecisionDeclaration(
    name="32-true",
    summary="weights and arithmetic in float32",
    implementation="builtin_plugins.fp32.precision:Float32Precision",
    api=API,
    aliases=("32", "fp32", "float32"),
    replaces=(Replaces("full", 'precision="32-true"'), Replaces("float", 'precision="32-true"')),
    preference=100,
)

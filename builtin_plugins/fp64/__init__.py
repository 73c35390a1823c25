"""Everything in float64."""

from core.declarations import API, Need, PrecisionDeclaration, Replaces

DECLARATION = PrecisionDeclaration(
    name="64-true",
    summary="weights and arithmetic in float64",
    implementation="builtin_plugins.fp64.precision:Float64Precision",
    api=API,
    aliases=("64", "fp64", "float64"),
    needs=(Need("dtype.float64", "the weights are kept in float64"),),
    replaces=(Replaces("double", 'precision="64-true"'),),
    wraps=("wrap_model", "transfer_batch"),
)

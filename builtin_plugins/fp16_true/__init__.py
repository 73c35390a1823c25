"""Everything in float16."""

from core.declarations import API, Need, PrecisionDeclaration, Replaces

DECLARATION = PrecisionDeclaration(
    name="16-true",
    summary="weights and arithmetic in float16",
    implementation="builtin_plugins.fp16_true.precision:Float16Precision",
    api=API,
    provides=("weights.half",),
    needs=(Need("dtype.float16", "the weights are kept in float16"),),
    replaces=(Replaces("half", 'precision="16-true", or "16-mixed" to keep the weights in float32'),),
    wraps=("wrap_model", "transfer_batch"),
)

"""Everything in bfloat16."""

from core.declarations import API, Need, PrecisionDeclaration

DECLARATION = PrecisionDeclaration(
    name="bf16-true",
    summary="weights and arithmetic in bfloat16",
    implementation="builtin_plugins.bf16_true.precision:BFloat16Precision",
    api=API,
    provides=("weights.half",),
    needs=(Need("dtype.bfloat16", "the weights are kept in bfloat16"),),
    wraps=("wrap_model", "transfer_batch"),
)

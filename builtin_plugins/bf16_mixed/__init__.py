"""Weights in float32, suitable operations in bfloat16."""

from core.declarations import API, Need, PrecisionDeclaration

DECLARATION = PrecisionDeclaration(
    name="bf16-mixed",
    summary="weights in float32, suitable operations in bfloat16",
    implementation="builtin_plugins.bf16_mixed.precision:BFloat16MixedPrecision",
    api=API,
    aliases=("bf16", "bfloat16"),
    needs=(Need("autocast.bfloat16", "forward runs under torch.autocast to bfloat16"),),
)

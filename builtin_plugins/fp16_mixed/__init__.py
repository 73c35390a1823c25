"""Weights in float32, suitable operations in float16, with a scaled loss."""

from core.declarations import API, Exclude, Need, Option, PrecisionDeclaration, Replaces

DECLARATION = PrecisionDeclaration(
    name="16-mixed",
    summary="weights in float32, suitable operations in float16, loss scaled",
    implementation="builtin_plugins.fp16_mixed.precision:Float16MixedPrecision",
    api=API,
    aliases=("16", "fp16", "float16"),
    provides=("loss_scaling",),
    needs=(
        Need("autocast.float16", "forward runs under torch.autocast to float16"),
        Need("grad_scaler", "gradients of float16 underflow unless the loss is scaled"),
    ),
    excludes=(
        Exclude("asked.optimizer.closure", "an optimizer that evaluates several times a step cannot skip one of them"),
    ),
    replaces=(
        Replaces("amp", 'precision="16-mixed"'),
        Replaces("native", 'precision="16-mixed"'),
        Replaces("mixed", 'precision="16-mixed", or "bf16-mixed", which needs no loss scaling'),
    ),
    wraps=("backward", "optimizer_step"),
    options=(
        Option("init_scale", 65536.0, "the first factor that the loss is multiplied by"),
        Option("growth_interval", 2000, "steps without overflow after which the factor doubles"),
    ),
)

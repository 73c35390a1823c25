"""Mixed precision by NVIDIA apex, for programs that were tuned with it."""

from core.declarations import API, Exclude, Need, Option, Package, PrecisionDeclaration

INSTALL = (
    "build NVIDIA's apex from its source, release 25.04 or older, since later ones have no apex.amp; "
    'torch\'s own mixed precision is precision="16-mixed"'
)

DECLARATION = PrecisionDeclaration(
    name="apex",
    summary="mixed precision by NVIDIA apex, levels O0 to O3; for programs that were tuned with it",
    implementation="builtin_plugins.apex.precision:ApexPrecision",
    api=API,
    provides=("amp.apex", "loss_scaling"),
    needs=(Need("device.cuda", "apex scales and casts CUDA tensors only"),),
    excludes=(
        Exclude("sharded.gradients", "apex scales each rank's gradients by itself, and ranks would hold others"),
        Exclude("sharded.optimizer", "the optimizers are made again, without what apex has put into them"),
        Exclude("asked.optimizer.closure", "an optimizer that evaluates several times a step cannot skip one of them"),
    ),
    packages=(Package("apex", module="apex.amp", known_by="apex.multi_tensor_apply", install=INSTALL),),
    wraps=("wrap_model", "backward"),
    options=(
        Option("level", "O2", "O0: float32; O1: operations cast; O2: float16 weights with masters; O3: all float16"),
        Option("loss_scale", None, "the factor of the loss: a number, 'dynamic', or None for what the level has"),
        Option("keep_batchnorm_fp32", None, "whether batch norm stays in float32; None for what the level has"),
    ),
)

"""A stand-in for apex.amp that works in host memory: the same calls, patches and order as the real one's.

It notes what is asked of it in ``EVENTS``. O1 and O2 scale the loss, O0 and O3 do not and look for no overflow. O2
keeps the weights in float16, with masters in float32 that the optimizers hold from the first ``zero_grad`` on, O3 has
float16 alone. Weights in float16, and optimizers that it knows already, are refused, as by the real one.
"""

SOURCE = """
import contextlib, types
import torch

EVENTS = []
STATE = {"loss_scale": 1024.0, "unskipped": 0}
LEVEL = {"fixed": False}


def initialize(model, optimizers, opt_level, loss_scale, keep_batchnorm_fp32, verbosity):
    device = next(model.parameters()).device.type
    EVENTS.append(("initialize", type(model).__name__, opt_level, device))
    if any(weight.dtype is torch.float16 for weight in model.parameters()):
        raise RuntimeError("Found param with type torch.HalfTensor, expected torch.FloatTensor.")
    LEVEL["fixed"] = loss_scale is None and opt_level in ("O0", "O3")
    if loss_scale not in (None, "dynamic"):
        STATE["loss_scale"] = loss_scale
    for optimizer in optimizers:
        if hasattr(optimizer, "_amp_stash"):
            raise RuntimeError("A given optimizer should only be passed through amp.initialize once.")
        optimizer._amp_stash = {}
        if opt_level == "O2":
            with_masters(model, optimizer)
        step = optimizer.step
        optimizer.step = lambda step=step: (EVENTS.append("step"), step())[1]
    if opt_level in ("O2", "O3"):
        model.half()
        forward = model.forward
        model.forward = lambda *inputs: forward(*(each.half() for each in inputs)).float()
    return model, optimizers


def with_masters(model, optimizer):
    weights = [p for group in optimizer.param_groups for p in group["params"]]
    masters, step = [], optimizer.step

    def zero_grad(self):
        if not masters:
            for group in self.param_groups:
                group["params"] = [p.detach().clone().float().requires_grad_() for p in group["params"]]
            masters.extend(p for group in self.param_groups for p in group["params"])
        for parameter in weights + masters:
            parameter.grad = None

    def to_masters():
        for weight, master in zip(weights, masters):
            if weight.grad is not None:
                master.grad = weight.grad.float()

    def step_masters(self):
        step()
        with torch.no_grad():
            for weight, master in zip(weights, masters):
                weight.copy_(master)

    optimizer.to_masters = to_masters
    optimizer.zero_grad = types.MethodType(zero_grad, optimizer)
    optimizer.step = types.MethodType(step_masters, optimizer)


@contextlib.contextmanager
def scale_loss(loss, optimizers, delay_unscale=False):
    EVENTS.append("scale" if delay_unscale else "unscale")
    if LEVEL["fixed"]:
        yield loss.float()
        return
    yield loss.float() * STATE["loss_scale"]
    if delay_unscale:
        return
    gradients = []
    for optimizer in optimizers:
        getattr(optimizer, "to_masters", lambda: None)()
        gradients += [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    for gradient in gradients:
        gradient.div_(STATE["loss_scale"])
    if all(bool(gradient.isfinite().all()) for gradient in gradients):
        STATE["unskipped"] += 1
        return
    STATE["loss_scale"] /= 2
    for optimizer in optimizers:
        def skip(optimizer=optimizer, step=optimizer.step):
            EVENTS.append("skip")
            optimizer.step = step
        optimizer.step = skip


def state_dict():
    return {"loss_scaler0": dict(STATE)}


def load_state_dict(state):
    STATE.update(state["loss_scaler0"])
"""


def write(folder, *, with_amp=True, init="", version="0.1", real=True):
    """Write a package called apex into ``folder``: NVIDIA's with or without amp, or (not ``real``) the other one."""
    package = folder / "apex"
    package.mkdir()
    (package / "__init__.py").write_text(init)
    if real:
        (package / "multi_tensor_apply.py").write_text("")
    if with_amp:
        (package / "amp.py").write_text(SOURCE)
    metadata = folder / f"apex-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: apex\nVersion: {version}\n")

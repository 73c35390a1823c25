"""On one GPU every strategy trains to the parameters of the loop by hand in host memory."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from support.reference import Case, Net, by_hand, dataset, furthest, make_trainer
from torch.utils.data import DataLoader

TOLERANCE = {"32-true": 1e-5, "bf16-mixed": 2e-3, "16-mixed": 2e-3}
"""The largest difference of a parameter: a GPU adds in another order, and 16 bits round at other places.

In 16 bits this is for plain descent: Adam steps as far for a gradient near zero, whose sign rounding decides.
"""
STRATEGIES = ["single_device", "ddp", "ddp_sharded", "fsdp", "dp"]
CLIPPED = Case("adam", accumulate=3, clip=0.05)


def train(case, strategy, **settings):
    """Train ``case`` on one GPU, and return the parameters in host memory and the Trainer."""
    module = settings.pop("module", None) or Net(case.optimizers)
    trainer = make_trainer(
        accelerator="cuda",
        strategy=strategy,
        precision=case.precision,
        max_epochs=case.epochs,
        accumulate_grad_batches=case.accumulate,
        gradient_clip_val=case.clip,
        gradient_clip_algorithm=case.algorithm,
        **settings,
    )
    trainer.fit(module, DataLoader(dataset(case.batches), batch_size=8))
    state = {name: in_host_memory(value) for name, value in module.state_dict().items()}
    trainer.end_run()
    return state, trainer


def in_host_memory(tensor):
    """Return ``tensor``, whole, in host memory; fsdp may leave it in parts."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).cpu()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_parameters(strategy):
    """Accumulated, clipped by the global norm and stepped on the GPU, the parameters are those of the loop by hand."""
    found, _ = train(CLIPPED, strategy)
    assert furthest(found, by_hand(CLIPPED)) <= TOLERANCE["32-true"]


@pytest.mark.parametrize("strategy", ["single_device", "ddp", "ddp_sharded"])
@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_native_mixed_precision(strategy, precision):
    """torch's own mixed precision gives the parameters of the loop by hand with the same autocast and scaler."""
    case = Case("sgd", accumulate=3, clip=0.5, precision=precision)
    found, _ = train(case, strategy)
    assert furthest(found, by_hand(case)) <= TOLERANCE[precision]


FORMATS = {
    "16-mixed": (torch.float32, torch.float16),
    "bf16-mixed": (torch.float32, torch.bfloat16),
    "16-true": (torch.float16, torch.float16),
    "bf16-true": (torch.bfloat16, torch.bfloat16),
    "64-true": (torch.float64, torch.float64),
}
"""Of weights, and of what a layer computes."""


@pytest.mark.parametrize("precision", FORMATS)
def test_formats(precision):
    """On the GPU too weights and arithmetic have the formats that the precision names, and the module stays there."""
    seen = set()

    class Looks(Net):
        def training_step(self, batch, batch_idx):
            weight = self.first[0].weight
            seen.add((weight.dtype, torch.nn.functional.linear(batch[0], weight).dtype, weight.device.type))
            return super().training_step(batch, batch_idx)

    module = Looks()
    train(Case(batches=2, epochs=1, precision=precision), "single_device", module=module)
    assert seen == {(*FORMATS[precision], "cuda")}
    assert {parameter.device.type for parameter in module.parameters()} == {"cuda"}


def test_benchmark():
    """benchmark=True lets cuDNN try out kernels during a run, and is put back."""
    seen, before = set(), torch.backends.cudnn.benchmark

    class Looks(Net):
        def training_step(self, batch, batch_idx):
            seen.add(torch.backends.cudnn.benchmark)
            return super().training_step(batch, batch_idx)

    train(Case(batches=1, epochs=1), "single_device", module=Looks(), benchmark=True)
    assert seen == {True}
    assert torch.backends.cudnn.benchmark is before


def test_overflow_is_skipped():
    """A window whose scaled gradients are not finite is skipped, and the next one steps."""

    class Overflows(Net):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * (float("inf") if batch_idx == 1 else 1.0)

    _, trainer = train(Case(batches=3, epochs=1, precision="16-mixed"), "single_device", module=Overflows())
    assert (trainer.global_step, trainer.progress.skipped_steps) == (3, 1)


def test_ddp_exchanges_over_nccl():
    """One rank of ddp forms its group over NCCL."""
    backends = set()

    class Looks(Net):
        def training_step(self, batch, batch_idx):
            backends.add(dist.get_backend())
            return super().training_step(batch, batch_idx)

    train(Case(batches=2, epochs=1), "ddp", module=Looks())
    assert backends == {"nccl"}


def test_resume(tmp_path):
    """A training that goes on from a checkpoint ends with the parameters of the unbroken one, the scaler included."""
    loader = DataLoader(dataset(4), batch_size=8)

    def fit(epochs, **how):
        module = Net("adam")
        trainer = make_trainer(accelerator="cuda", precision="16-mixed", max_epochs=epochs)
        trainer.fit(module, loader, **how)
        return module, trainer

    unbroken, _ = fit(2)
    _, first = fit(1)
    first.save_checkpoint(tmp_path / "a.ckpt")
    resumed, _ = fit(2, ckpt_path=tmp_path / "a.ckpt")
    assert furthest(dict(resumed.state_dict()), dict(unbroken.state_dict())) <= TOLERANCE["32-true"]


def test_loaded_in_host_memory(tmp_path):
    """A checkpoint from the GPU gives the same weights to a Trainer in host memory."""
    found, trainer = train(Case(batches=2, epochs=1), "single_device")
    module = Net()
    gpu = make_trainer(accelerator="cuda", max_epochs=1)
    gpu.fit(module, DataLoader(dataset(2), batch_size=8))
    gpu.save_checkpoint(tmp_path / "a.ckpt")
    state = torch.load(tmp_path / "a.ckpt", map_location="cpu")["state_dict"]
    assert furthest(state, found) <= TOLERANCE["32-true"]
    assert trainer.plan.accelerator.name == "cuda"

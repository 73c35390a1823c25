"""The rules of the original's connector, C1 to C34, each with our outcome: refused with its reason, or working."""

import pytest
import torch
from support.nets import Net, loader, quiet_trainer
from torch.utils.data import DataLoader, IterableDataset, Sampler

from core import Trainer, availability
from core.availability import Availability
from core.errors import (
    CheckpointError,
    InterlockError,
    InvalidArgument,
    InvalidCombination,
    PluginUnavailable,
    UnknownPlugin,
    WrongType,
)
from core.registry import get_registry
from core.request import Request
from core.session import LaunchEnvironment, Ranks
from core.tuner import Tuner


def plan(**settings):
    """Return the plan of these settings on the CPU."""
    return Trainer(**{"accelerator": "cpu", "logger": False, **settings}).plan


def instance(kind, name):
    """Return a new implementation of a plugin."""
    module, _, attribute = get_registry().find(kind, name).declaration.implementation.partition(":")
    return getattr(__import__(module, fromlist=[attribute]), attribute)()


class Training(Net):
    """Can be trained only."""

    validation_step = None


class Every(Sampler):
    """A sampler of the user's own."""

    def __iter__(self):
        return iter(range(8))


class Closing(Net):
    """Uses an optimizer that evaluates the loss several times."""

    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters())


class Stream(IterableDataset):
    """Has no length."""

    def __iter__(self):
        return iter(torch.ones(4, 4))


def weights_only_resume(folder):
    """Save weights only and try to go on from them."""
    trainer = quiet_trainer()
    trainer.fit(Net(), loader())
    trainer.save_checkpoint(folder / "weights.ckpt", weights_only=True)
    quiet_trainer(max_epochs=2).fit(Net(), loader(), ckpt_path=folder / "weights.ckpt")


REFUSED = {
    "C1": (lambda: plan(plugins=[instance("precision", "bf16-mixed")] * 2), InvalidArgument, "two of one kind"),
    "C1, strategy": (
        lambda: plan(strategy="ddp", plugins=[instance("strategy", "ddp")]),
        InvalidArgument,
        "both choose the strategy",
    ),
    "C2": (lambda: plan(plugins=["ddp"]), WrongType, "plugins holds a str"),
    "C4": (lambda: plan(precision=8), UnknownPlugin, "unknown precision '8'"),
    "C7": (lambda: plan(accelerator="cuda", precision="apex"), PluginUnavailable, "build NVIDIA's apex"),
    "C8": (
        lambda: plan(accelerator="cuda", precision="apex", strategy="ddp_sharded", devices=2),
        InvalidCombination,
        "excludes amp.apex",
    ),
    "C9": (lambda: quiet_trainer(precision=16).fit(Closing(), loader()), InvalidCombination, "optimizer.closure"),
    "C10": (lambda: plan(accelerator="tpu", precision="16-mixed"), InvalidCombination, "autocast.float16"),
    "C11": (lambda: plan(strategy="ddp_sharded", devices=2, num_nodes=2), InvalidCombination, "torchrun --nnodes 2"),
    "C13": (lambda: plan(strategy="dp", devices=0), InvalidArgument, "at least 1"),
    "C15": (lambda: plan(strategy="ddp_shared"), UnknownPlugin, "did you mean 'ddp_sharded'"),
    "C16": (lambda: plan(strategy="ddp_cpu"), UnknownPlugin, 'write accelerator="cpu", strategy="ddp"'),
    "C17": (lambda: plan(strategy="horovod"), UnknownPlugin, 'write strategy="ddp"'),
    "C18": (lambda: plan(accelerator="tpu"), PluginUnavailable, "torch_xla"),
    "C19": (lambda: plan(accelerator="cuda", devices=[True]), WrongType, "whole numbers only"),
    "C20": (lambda: plan(auto_select_gpus=True), InvalidArgument, 'write accelerator="cuda", devices=N'),
    "C22": (lambda: plan(accelerator="tpu", strategy="ddp_sharded", devices=2), InvalidCombination, "collective.gloo"),
    "C24": (lambda: plan(sync_batchnorm=True), InvalidCombination, "sync_batchnorm"),
    "C24, dp": (lambda: plan(strategy="dp", devices=2, sync_batchnorm=True), InvalidCombination, "sync_batchnorm"),
    "C29": (lambda: quiet_trainer().fit(torch.nn.Linear(1, 1), loader()), InterlockError, "has no training_step"),
    "C30": (lambda: quiet_trainer().fit(Training(), loader(), loader()), InterlockError, "has no validation_step"),
    "C30, alone": (lambda: quiet_trainer().validate(Training(), loader()), InterlockError, "has no validation_step"),
    "C31": (lambda: quiet_trainer(limit_train_batches=1.5), InvalidArgument, "fraction from 0.0 to 1.0"),
    "C31, length": (
        lambda: quiet_trainer(limit_train_batches=0.5).fit(Net(), DataLoader(Stream())),
        InvalidArgument,
        "length",
    ),
    "C31, interval": (
        lambda: quiet_trainer(val_check_interval=9).fit(Net(), loader(4), loader()),
        InvalidArgument,
        "val_check_interval=9 is more than the 4 batches of an epoch",
    ),
    "C31, negative": (lambda: quiet_trainer(fast_dev_run=-1), InvalidArgument, "fast_dev_run=-1 must be at least 0"),
    "C33": (lambda: plan(accumulate_grad_batches=2.0), WrongType, "whole number"),
    "C33, summary": (lambda: plan(weights_summary="top"), InvalidArgument, "write enable_model_summary="),
    "C33, norm": (lambda: plan(track_grad_norm="2"), InvalidArgument, "on_before_optimizer_step"),
    "C33, mode": (
        lambda: Tuner(quiet_trainer()).scale_batch_size(Net(), mode="binary"),
        InvalidArgument,
        "must be one of 'power', 'binsearch'",
    ),
    "C33, attribute": (
        lambda: Tuner(quiet_trainer()).lr_find(Net(), loader(40)),
        InvalidArgument,
        "found no 'lr' or 'learning_rate' in Net",
    ),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused_with_its_reason(rule):
    """What cannot work is refused, by the kind of error that says which way it is wrong, with the fact in it."""
    call, error, fact = REFUSED[rule]
    with pytest.raises(error) as refused:
        call()
    assert fact in str(refused.value)


def test_c32_weights_alone_do_not_resume(tmp_path):
    """C32: fit from a file of weights only is refused before training, saying what is missing."""
    with pytest.raises(CheckpointError, match="weights only"):
        weights_only_resume(tmp_path)


def test_c32_a_checkpoint_past_the_end_is_refused(tmp_path):
    """C32: going on from two epochs where the run ends after one is refused with both numbers; at its end it is not."""
    path = tmp_path / "end.ckpt"
    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(Net(), loader(4))
    trainer.save_checkpoint(path)
    with pytest.raises(CheckpointError, match="max_epochs=1, and it has come to 2"):
        quiet_trainer(max_epochs=1).fit(Net(), loader(4), ckpt_path=path)
    with pytest.raises(CheckpointError, match="max_steps=7, and it has come to 8"):
        quiet_trainer(max_epochs=-1, max_steps=7).fit(Net(), loader(4), ckpt_path=path)
    done = quiet_trainer(max_epochs=2)
    done.fit(Net(), loader(4), ckpt_path=path)
    assert done.global_step == 8


def test_c34_a_wrong_balance_is_refused_at_construction():
    """C34: a pipeline's balance that does not fit is refused when the Trainer is made, not when it starts."""
    from builtin_plugins.rpc_sequential.strategy import RPCSequentialStrategy

    with pytest.raises(InterlockError, match="balance"):
        plan(strategy=RPCSequentialStrategy(balance=[1, 0]), devices=2)


def test_c19_an_index_beyond_the_devices_is_refused(monkeypatch):
    """C19: on a machine with two GPUs the index 5 is refused, with the indices that there are."""
    monkeypatch.setattr("core.resolve.probe", lambda declaration: Availability(2))
    monkeypatch.setattr("core.resolve.reasons_against", lambda declaration: [])
    with pytest.raises(PluginUnavailable, match="5 asked for, cuda has 0 to 1 here"):
        plan(accelerator="cuda", devices=[5])


def test_c23_a_missing_package_is_named_with_what_to_install(monkeypatch):
    """C23: without fairscale, ddp_sharded is refused at construction with the command that brings it."""
    availability.package_problem.cache_clear()
    monkeypatch.setattr(availability, "installed_version", lambda name: None if name == "fairscale" else "9")
    with pytest.raises(PluginUnavailable, match=r"interlock\[sharded\]"):
        plan(strategy="ddp_sharded", devices=2)
    availability.package_problem.cache_clear()


def names(made):
    """Return the names of a plan's accelerator, precision and strategy."""
    return tuple(made.combination)


def steps(trainer, module, data):
    """Train, and return the number of optimizer steps."""
    trainer.fit(module, data)
    return trainer.global_step


WORKS = {
    "C3": (
        lambda: names(plan(accelerator=instance("accelerator", "cpu"), precision=instance("precision", "64-true"))),
        ("cpu", "64-true", "single_device"),
    ),
    "C5": (lambda: steps(quiet_trainer(precision=16), Net(), loader(4)), 4),
    "C6": (lambda: names(plan(precision=16)), ("cpu", "16-mixed", "single_device")),
    "C13": (lambda: names(plan(strategy="ddp", devices=1)), ("cpu", "32-true", "ddp")),
    "C14": (lambda: names(plan(strategy="rpc_sequential", devices=2)), ("cpu", "32-true", "rpc_sequential")),
    "C15": (lambda: names(plan(strategy="DDP", devices=2)), ("cpu", "32-true", "ddp")),
    "C23": (lambda: names(plan(strategy="ddp_sharded", devices=2)), ("cpu", "32-true", "ddp_sharded")),
    "C26": (lambda: steps(quiet_trainer(), Net(), Hiding()), 4),
    "C27": (lambda: names(plan(strategy="ddp_spawn", devices=2)), ("cpu", "32-true", "ddp_spawn")),
    "C28": (lambda: steps(quiet_trainer(accumulate_grad_batches=2), OwnStep(), loader(4)), 2),
    "C30": (lambda: steps(quiet_trainer(), Net(), loader(4)), 4),
}
"""What each comes to: names as asked for, or steps that are taken."""


class Hiding(DataLoader):
    """A loader whose constructor hides its arguments."""

    def __init__(self):
        super().__init__(torch.ones(8, 4), batch_size=2)


class OwnStep(Net):
    """Writes its own optimizer_step."""

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        optimizer.step(closure=optimizer_closure)


@pytest.mark.parametrize("rule", WORKS)
def test_works_because_it_was_fixed(rule):
    """What the original refused, changed or passed by in silence works as it was asked for."""
    call, outcome = WORKS[rule]
    assert call() == outcome


def test_c21_a_gpu_is_taken_or_named(monkeypatch):
    """C21: auto takes a GPU that is here, and who asks for the CPU gets it and is told that it was asked for."""
    monkeypatch.setattr("core.resolve.reasons_against", lambda declaration: [])
    monkeypatch.setattr("core.resolve.probe", lambda declaration: Availability(1))
    taken = get_registry().resolve(Request()).accelerator
    assert (taken.name, taken.reason) == ("cuda", "auto: the best that is here")
    asked = get_registry().resolve(Request("cpu")).accelerator
    assert (asked.name, asked.reason) == ("cpu", "asked for")


def test_c11_sharded_on_several_nodes_is_valid_under_a_launcher():
    """C11: the original refused sharded training on several nodes; under a launcher it resolves."""
    ranks = Ranks(0, 0, 0, 4, 2)
    launcher = LaunchEnvironment("torchrun", "by torchrun", ranks, "host", 1, ("launched.external",))
    from core.spellings import Devices

    request = Request("cpu", "auto", "ddp_sharded", Devices(2), 2, environment=launcher)
    assert get_registry().resolve(request).world_size == 4


@pytest.mark.parametrize(("session", "taken"), [("session.script", "ddp"), ("session.interactive", "ddp_fork")])
def test_c12_several_devices_without_a_name(session, taken):
    """C12: several devices and no name take the preferred strategy that can start processes in this session."""
    from core.spellings import Devices

    made = get_registry().resolve(Request("cpu", devices=Devices(2), session=session))
    assert made.strategy.name == taken
    assert made.strategy.reason.startswith("auto")


def test_c25_a_sampler_of_the_users_own_is_not_replaced():
    """C25: in a run of several ranks a custom sampler is refused with the way out, never replaced in silence."""
    from core.data.sharding import shard_loader
    from core.hookspecs import Shard

    with pytest.raises(InvalidArgument, match="use_distributed_sampler=False"):
        shard_loader(
            DataLoader(torch.ones(8, 4), sampler=Every()), Shard(0, 2), train=True, seed=0, name="train_dataloaders"
        )

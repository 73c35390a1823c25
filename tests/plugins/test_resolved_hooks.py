"""How the hooks of a run are called once its plugins are bound together."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core import Module, Trainer
from core.plugins.binding import bind, make_plugins

STRATEGY = """
    from core.plugins import Strategy, hookimpl
    class Implementation(Strategy):
        @hookimpl
        def reduce(self, op, tensor):
            return {"op": op, "tensor": tensor}

        @hookimpl
        def barrier(self, name):
            return name

        @hookimpl
        def broadcast(self):
            return "nothing asked for"

        @hookimpl
        def optimizer_step(self, closure, optimizer):
            return [("owner", optimizer, closure)]
"""
PRECISION = """
    from core.plugins import Precision, hookimpl
    class Implementation(Precision):
        @property
        def scale(self):
            raise AttributeError("there is no device before the processes start")

        @hookimpl(wrapper=True)
        def optimizer_step(self, optimizer):
            calls = yield
            return [("precision", optimizer), *calls]
"""
ACCELERATOR = """
    import torch
    from core.plugins import Accelerator, hookimpl
    class Implementation(Accelerator):
        @hookimpl
        def setup_device(self):
            return torch.empty(0).device

        @hookimpl(wrapper=True)
        def optimizer_step(self):
            calls = yield
            return ["accelerator", *calls]
"""


@pytest.fixture
def hooks(site):
    """The hooks of a strategy, a precision and an accelerator of three packages, each free in its arguments."""
    site.plugin("dist-s", "strategy", "mine", STRATEGY)
    site.plugin("dist-p", "precision", "mine", PRECISION, wraps=("optimizer_step",))
    site.plugin("dist-a", "accelerator", "mine", ACCELERATOR, wraps=("optimizer_step",))
    site.ready()
    plan = Trainer(accelerator="mine", precision="mine", strategy="mine", logger=False).plan
    return bind(plan, make_plugins(plan, {}))


def test_arguments_reach_an_implementation_by_name(hooks):
    """An implementation may take the hook's arguments in another order; positions and keywords mean the hook's."""
    expected = {"op": "sum", "tensor": 1}
    assert hooks.reduce(1, "sum") == expected
    assert hooks.reduce(tensor=1, op="sum") == expected
    assert hooks.reduce(1, op="sum") == expected


def test_an_implementation_may_take_fewer_arguments(hooks):
    """What an implementation does not ask for is left out."""
    assert hooks.barrier("start", 3.0) == "start"
    assert hooks.broadcast("value") == "nothing asked for"
    assert hooks.setup_device(None).type == "cpu"


def test_wrappers_stand_around_the_owner(hooks):
    """The accelerator is outermost, then the precision, then the strategy that owns the hook."""
    assert hooks.optimizer_step("adam", None) == ["accelerator", ("precision", "adam"), ("owner", "adam", None)]


def test_an_unknown_hook_is_named(hooks):
    """Asking for a hook that does not exist says which do."""
    with pytest.raises(AttributeError, match=r"no hook 'redcue'; the hooks are launch, .*reduce"):
        hooks.redcue()


def test_what_does_nothing_may_be_left_out(hooks):
    """The loop may ask whether a call has an effect: one that is marked so and not wrapped has none."""
    assert not hooks.changes("skip_gradient_sync")
    assert hooks.changes("optimizer_step")
    assert hooks.changes("reduce")


def test_a_plain_hook_costs_a_bound_method():
    """Where nothing wraps a hook and the arguments are the hook's own, it is the plugin's method itself."""
    plan = Trainer(accelerator="cpu", strategy="single_device", logger=False).plan
    plugins = make_plugins(plan, {})
    hooks = bind(plan, plugins)
    assert hooks.backward == plugins["strategy"].backward
    assert hooks.transfer_batch == plugins["accelerator"].transfer_batch


class Tiny(Module):
    """One weight."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_each_run_has_a_manager_of_its_own(site):
    """An instance that serves two Trainers is registered in each anew; neither sees the other's plugins."""
    site.plugin("dist-s", "strategy", "mine", "from core.plugins import Strategy\nclass Implementation(Strategy): pass")
    site.ready()
    from dist_s_implementation import Implementation

    strategy = Implementation()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_steps": 1}
    for _ in range(2):
        trainer = Trainer(accelerator="cpu", strategy=strategy, **quiet)
        trainer.fit(Tiny(), [torch.ones(2, 2)])
        assert strategy.plan is trainer.plan

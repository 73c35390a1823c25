"""What a chosen plugin does wrong while it runs is told with its hook, its name and its package."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from core import Module, Trainer
from core.errors import PluginBroken

BASES = {"strategy": "Strategy", "precision": "Precision", "accelerator": "Accelerator"}


class Tiny(Module):
    """One weight; it may fail by itself, inside what a hook calls."""

    def __init__(self, fails: str = ""):
        super().__init__()
        self.net, self.fails = nn.Linear(2, 1), fails

    def training_step(self, batch, batch_idx):
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        if self.fails:
            raise ValueError(self.fails)
        return torch.optim.SGD(self.parameters(), lr=0.1)


def install(site, kind, body, **fields):
    """Install a plugin whose implementation has this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    head = "from core.plugins import Accelerator, Precision, Strategy, WrappedModel, hookimpl\n"
    extra = {"preference": 0} if kind == "accelerator" else {}
    site.plugin("acme", kind, "ring", f"{head}class Implementation({BASES[kind]}):\n{lines}\n", **extra, **fields)
    site.ready()


def train(module=None, **plugins):
    """Train two steps and save; the plugin under test is given by name or as an instance."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    chosen = {"accelerator": "cpu", "strategy": "single_device", "precision": "32-true", **plugins}
    trainer = Trainer(max_steps=2, enable_model_summary=False, **chosen, **quiet)
    trainer.fit(module or Tiny(), [torch.ones(2, 2)] * 2)
    return trainer


@pytest.mark.parametrize(
    ("kind", "body", "wraps", "hook"),
    [
        ("strategy", "@hookimpl\ndef backward(self, loss): raise KeyError('odd')", (), "backward"),
        ("strategy", "@hookimpl\ndef conclude(self, outcome): raise KeyError('odd')", (), "conclude"),
        (
            "precision",
            "@hookimpl(wrapper=True)\ndef optimizer_step(self):\n    yield\n    raise KeyError('odd')",
            ("optimizer_step",),
            "optimizer_step",
        ),
    ],
    ids=["owner", "last", "wrapper"],
)
def test_an_error_in_a_hook_names_it(site, kind, body, wraps, hook):
    """The plugin's own error comes through as it is, with a note on the hook, the plugin and its package."""
    install(site, kind, body, wraps=wraps)
    with pytest.raises(KeyError) as raised:
        train(**{kind: "ring"})
    notes = [f"inside the hook {hook!r} of {kind} 'ring' from acme 1.0"] if sys.version_info >= (3, 11) else []
    assert getattr(raised.value, "__notes__", []) == notes


def test_an_error_of_the_module_blames_no_plugin():
    """What the user's module raises inside a hook that calls it is the user's."""
    with pytest.raises(ValueError, match="my own") as raised:
        train(Tiny("my own"))
    assert not getattr(raised.value, "__notes__", ())


def test_an_interrupt_blames_no_plugin(site):
    """Ctrl-C that comes while a hook runs is the user's."""
    install(site, "strategy", "@hookimpl\ndef backward(self, loss):\n    raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt) as raised:
        train(strategy="ring")
    assert not getattr(raised.value, "__notes__", ())


def test_an_error_without_text(site):
    """An error of a hook whose text cannot be had still comes through as itself."""
    body = "class Mute(Exception):\n    def __str__(self): raise RuntimeError('no')\n"
    install(site, "strategy", body + "@hookimpl\ndef backward(self, loss): raise self.Mute()")
    with pytest.raises(Exception) as raised:  # noqa: PT011 - its type is the plugin's own
        train(strategy="ring")
    assert type(raised.value).__name__ == "Mute"


def test_a_hook_that_exits_is_broken(site):
    """A hook that calls sys.exit(0) in the middle of a run cannot end it early and green."""
    install(site, "strategy", "@hookimpl\ndef backward(self, loss):\n    raise SystemExit(0)")
    with pytest.raises(PluginBroken, match=r"strategy 'ring' from acme 1\.0 is broken\n.*'backward'") as raised:
        train(strategy="ring")
    assert isinstance(raised.value.__cause__, SystemExit)


ANSWERS = {
    "no device": ("accelerator", "setup_device(self): return 'cpu'", "its 'setup_device' returned 'cpu', and device"),
    "no model": (
        "strategy",
        "wrap_model(self, module): return None",
        "its 'wrap_model' returned None, and WrappedModel",
    ),
    "no shard": ("strategy", "shard_data(self): pass", "its 'shard_data' returned None, and Shard belongs there"),
    "no outcome": ("strategy", "conclude(self, outcome): pass", "its 'conclude' returned None, and StageResult"),
    "no launch": ("strategy", "launch(self, run): pass", "its 'launch' returned None, and StageResult belongs there"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_wrong_answer_is_told(site, case):
    """A hook that forgets to return, or returns something else, is named with what belongs there."""
    kind, body, words = ANSWERS[case]
    install(site, kind, f"@hookimpl\ndef {body}")
    with pytest.raises(PluginBroken) as raised:
        train(**{kind: "ring"})
    assert words in raised.value.reason
    assert (raised.value.kind, raised.value.distribution) == (kind, "acme 1.0")


def test_a_wrapper_that_forgets_the_result_is_told(site):
    """Who has the last word on a hook is named when the answer is lost."""
    body = "@hookimpl(wrapper=True)\ndef wrap_model(self, module):\n    yield"
    install(site, "precision", body, wraps=("wrap_model",))
    with pytest.raises(PluginBroken, match="precision 'ring' from acme") as raised:
        train(precision="ring")
    assert "returned None" in raised.value.reason


def test_an_instance_that_is_false_is_the_one_that_runs(site):
    """An instance with a length of 0 is used as it is, and no other is made in its place."""
    install(site, "strategy", "mark = 1\ndef __len__(self): return 0")
    from acme_implementation import Implementation

    strategy = Implementation()
    trainer = train(strategy=strategy)
    assert strategy.plan is trainer.plan


def test_a_constructor_that_makes_something_else_is_broken(site):
    """A class whose call makes no instance of it is told so."""
    install(site, "strategy", "def __new__(cls): return 5")
    with pytest.raises(PluginBroken, match=r"Implementation\(\) makes 5, not an instance of itself"):
        train(strategy="ring")

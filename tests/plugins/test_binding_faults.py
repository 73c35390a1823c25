"""A chosen plugin whose code breaks the contract: one error that names it, before any process starts."""

from __future__ import annotations

import subprocess

import pytest
import torch
from torch import nn

from core import Module, Trainer
from core.errors import PluginBroken

STRATEGY = """
    from core.plugins import Strategy, hookimpl
    class Implementation(Strategy):
"""
PRECISION = """
    from core.plugins import Precision, hookimpl
    class Implementation(Precision):
"""
PARALLEL = """
    from core.plugins import hookimpl
    from core.parallel.process_per_device import ProcessPerDeviceStrategy
    class Implementation(ProcessPerDeviceStrategy):
"""
IMPORT, BUILD, REGISTER = "import of the implementation", "construction", "registration of its hooks"


class Tiny(Module):
    """One weight."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(**names: object) -> Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_steps": 1}
    return Trainer(accelerator="cpu", **quiet, **names)


def fit(made: Trainer) -> None:
    made.fit(Tiny(), [torch.ones(2, 2)])


IMPORT_FAULTS = {
    "ImportError": ("import nowhere_to_be_found", ModuleNotFoundError, "No module named 'nowhere_to_be_found'"),
    "SyntaxError": ("def broken(:", SyntaxError, "SyntaxError"),
    "SystemExit": ("raise SystemExit(0)", SystemExit, "SystemExit: 0"),
    "ValueError": ("raise ValueError('bad start')", ValueError, "ValueError: bad start"),
    "attribute missing": ("", AttributeError, "has no attribute 'Implementation'"),
}


@pytest.mark.parametrize("fault", IMPORT_FAULTS)
def test_an_import_that_fails_is_broken_with_its_cause(site, fault):
    """Whatever the implementation's import raises, SystemExit included, becomes one error with the cause chained."""
    source, cause, words = IMPORT_FAULTS[fault]
    site.plugin("bad-dist", "strategy", "bad", source, version="2.5")
    made = trainer(strategy="bad")  # the plan needs the declaration only
    with pytest.raises(PluginBroken) as raised:
        fit(made)
    error = raised.value
    assert (error.kind, error.name, error.distribution, error.phase) == ("strategy", "bad", "bad-dist 2.5", IMPORT)
    assert isinstance(error.__cause__, cause)
    assert words in error.reason
    assert all(word in str(error) for word in ("strategy 'bad'", "bad-dist 2.5", IMPORT, words))


def test_keyboard_interrupt_passes(site):
    """Ctrl-C during the import is the user's, not the plugin's."""
    site.plugin("bad-dist", "strategy", "bad", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        fit(trainer(strategy="bad"))


BUILD_FAULTS = {
    "raises": ("def __init__(self): raise RuntimeError('no licence')", RuntimeError, "RuntimeError: no licence"),
    "exits": ("def __init__(self): raise SystemExit(0)", SystemExit, "SystemExit: 0"),
    "needs more": ("def __init__(self, key): pass", TypeError, "missing 1 required positional argument"),
}


@pytest.mark.parametrize("fault", BUILD_FAULTS)
def test_a_constructor_that_fails_is_broken_with_its_cause(site, fault):
    """A constructor that raises, exits, or asks for what the declaration does not give, is named with its cause."""
    body, cause, words = BUILD_FAULTS[fault]
    site.plugin("bad-dist", "precision", "bad", f"{PRECISION}        {body}")
    with pytest.raises(PluginBroken) as raised:
        fit(trainer(precision="bad", strategy="single_device"))
    error = raised.value
    assert (error.kind, error.name, error.distribution, error.phase) == ("precision", "bad", "bad-dist 1.0", BUILD)
    assert isinstance(error.__cause__, cause)
    assert words in error.reason


@pytest.mark.parametrize("source", ["Implementation = 3", "class Implementation: pass", "def Implementation(): pass"])
def test_an_implementation_that_is_no_plugin_is_broken(site, source):
    """What the declaration names has to be a subclass of Plugin."""
    site.plugin("bad-dist", "strategy", "bad", source)
    with pytest.raises(PluginBroken, match=r"not a subclass of core\.plugins\.Plugin") as raised:
        fit(trainer(strategy="bad"))
    assert raised.value.phase == IMPORT


HOOK_FAULTS = {
    "misspelt": (
        "@hookimpl\n        def optimzer_step(self, optimizer): pass",
        {},
        "implements 'optimzer_step', and there is no such hook; did you mean 'optimizer_step'?",
    ),
    "wrong argument": (
        "@hookimpl\n        def reduce(self, tensor, how): return tensor",
        {},
        "its 'reduce' asks for 'how', and the hook is reduce(tensor, op)",
    ),
    "argument with a default": (
        "@hookimpl\n        def optimizer_step(self, optimizer, closure=None): optimizer.step(closure)",
        {},
        "its 'optimizer_step' has a default for 'closure', which pluggy then does not pass",
    ),
    "any arguments": (
        "@hookimpl\n        def reduce(self, *args): return args[0]",
        {},
        "its 'reduce' takes *args, which stays empty",
    ),
    "async": (
        "@hookimpl\n        async def backward(self, loss): loss.backward()",
        {},
        "its 'backward' is async, and nothing would await it",
    ),
    "generator": (
        "@hookimpl\n        def backward(self, loss):\n            yield loss.backward()",
        {},
        "its 'backward' is a generator, which would never begin",
    ),
    "without the decorator": (
        "def backward(self, loss): loss.backward()",
        {},
        "it does not answer 'backward': Implementation.backward lacks @hookimpl",
    ),
    "of another kind": (
        "@hookimpl\n        def forward_context(self): pass",
        {},
        "it answers 'forward_context', which belongs to the precision",
    ),
    "to be wrapped only": (
        "@hookimpl\n        def setup_device(self, ranks): pass",
        {},
        "it answers 'setup_device', which belongs to the accelerator and may only be wrapped",
    ),
    "wraps without a word": (
        "@hookimpl(wrapper=True)\n        def setup_device(self, ranks): return (yield)",
        {},
        "it wraps 'setup_device' and does not declare it; add it to wraps",
    ),
    "wraps what is not its own": (
        "@hookimpl(wrapper=True)\n        def forward_context(self): return (yield)",
        {},
        "it wraps 'forward_context', which a strategy may not",
    ),
    "wraps what it owns": (
        "@hookimpl(wrapper=True)\n        def backward(self, loss): return (yield)",
        {},
        "it wraps 'backward', which the strategy owns and has to answer itself",
    ),
    "declares and does not wrap": (
        "pass",
        {"wraps": ("setup_device",)},
        "declares to wrap 'setup_device' and does not",
    ),
    "wraps without the decorator": (
        "def setup_device(self, ranks): return (yield)",
        {"wraps": ("setup_device",)},
        "does not: Implementation.setup_device lacks @hookimpl(wrapper=True)",
    ),
    "wrapper that does not yield": (
        "@hookimpl(wrapper=True)\n        def setup_device(self, ranks): return ranks",
        {"wraps": ("setup_device",)},
        "is not a generator function",
    ),
}


@pytest.mark.parametrize("fault", HOOK_FAULTS)
def test_a_hook_that_breaks_the_contract_is_broken(site, fault):
    """A hook that would be ignored, called wrongly, or answered twice, is refused with what is wrong about it."""
    body, fields, words = HOOK_FAULTS[fault]
    site.plugin("bad-dist", "strategy", "bad", f"{STRATEGY}        {body}", **fields)
    with pytest.raises(PluginBroken) as raised:
        fit(trainer(strategy="bad"))
    error = raised.value
    assert (error.kind, error.name, error.distribution, error.phase) == ("strategy", "bad", "bad-dist 1.0", REGISTER)
    assert words in error.reason


def test_every_fault_is_said_at_once(site):
    """One error lists all that is wrong with a plugin's hooks."""
    body = "@hookimpl\n        def reduse(self, tensor): pass\n        def backward(self, loss): pass"
    site.plugin("bad-dist", "strategy", "bad", f"{STRATEGY}        {body}")
    with pytest.raises(PluginBroken, match=r"'reduse'.*'backward'"):
        fit(trainer(strategy="bad"))


def test_no_process_starts_and_nothing_stays_behind(site, monkeypatch):
    """A strategy of two processes that breaks the contract starts none; the next run knows nothing of it."""
    tokens = {"provides": ("devices.many", "launch.subprocess"), "ranks": "device", "wraps": ("setup_device",)}
    body = "@hookimpl\n        def bakward(self, loss): pass"
    site.plugin("bad-dist", "strategy", "bad", f"{PARALLEL}        {body}", **tokens)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    made = trainer(strategy="bad", devices=2)
    for _ in range(2):  # a second try says the same, not that something is registered already
        with pytest.raises(PluginBroken, match="'bakward'"):
            fit(made)
    fit(trainer(strategy="single_device"))


def test_only_the_chosen_implementation_is_imported(site):
    """Of five plugins with an import that leaves a mark, one is chosen and one mark is left."""
    mark = "\n    from pathlib import Path\n    Path(__file__ + '.imported').touch()\n"
    for number in range(3):
        site.plugin(f"dist-{number}", "strategy", f"strategy{number}", f"{mark}{STRATEGY}        pass")
    for number in range(2):
        site.plugin(f"other-{number}", "precision", f"precision{number}", f"{mark}{PRECISION}        pass")
    made = trainer(strategy="strategy1")
    assert not list(site.folder.glob("*.imported"))
    fit(made)
    assert [path.name for path in site.folder.glob("*.imported")] == ["dist_1_implementation.py.imported"]

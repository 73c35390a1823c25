"""Callbacks that installed packages bring: listed without import, off until they are taken."""

import pytest
from support.nets import QUIET

from core import Trainer
from core.callbacks import installed_callbacks
from core.callbacks.installed import _points, load_callbacks
from core.errors import DuplicatePlugin, PluginBroken, UnknownPlugin

SOURCE = """
import os
from core import Callback

open(os.path.join(os.path.dirname(__file__), "{module}-imported"), "w").close()


class Greeter(Callback):
    pass


def two():
    return [Greeter(), Greeter()]


def broken():
    raise OSError("no greeting")


NOTHING = 3
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Look at the installed packages anew."""
    monkeypatch.delenv("INTERLOCK_CALLBACKS", raising=False)
    _points.cache_clear()
    yield
    _points.cache_clear()


@pytest.fixture
def greeters(site):
    """Two packages: one with four entry points, and another that has one name in common with it."""
    for name, points in [
        ("greet-kit", {"greeter": "Greeter", "two": "two", "broken": "broken", "nothing": "NOTHING"}),
        ("other-kit", {"other": "Greeter", "TWO": "two", "missing": "no_such"}),
    ]:
        module = name.replace("-", "_")
        (site.folder / f"{module}.py").write_text(SOURCE.format(module=module))
        values = {point: f"{module}:{attribute}" for point, attribute in points.items()}
        site.metadata(name, "2.0", {"interlock.callbacks": values})
    return site


def kinds(**settings):
    return [type(callback).__name__ for callback in Trainer(**{**QUIET, **settings}).callbacks]


def test_listed_and_off(greeters):
    """They are listed with the package that brings them; none is imported, none takes part."""
    listed = [(item.name, item.distribution, item.version, item.on) for item in installed_callbacks()]
    assert ("greeter", "greet-kit", "2.0", False) in listed
    assert len(listed) == 7
    assert kinds() == []
    assert not list(greeters.folder.glob("*-imported"))


def test_taken_by_name(greeters):
    """A name in the Trainer's callbacks takes one, alone or among others, in any spelling of it."""
    assert kinds(callbacks="greeter") == ["Greeter"]
    assert kinds(callbacks=["Greeter", "other"]) == ["Greeter", "Greeter"]
    assert not list(greeters.folder.glob("nothing-imported"))


def test_taken_by_environment(greeters, monkeypatch):
    """The environment variable takes them for every Trainer, once each, and the list says so."""
    monkeypatch.setenv("INTERLOCK_CALLBACKS", " greeter, greet-kit:two ")
    assert kinds() == ["Greeter"] * 3
    assert kinds(callbacks=["greeter"]) == ["Greeter"] * 3
    assert {item.name for item in installed_callbacks() if item.on} == {"greeter", "two"}


def test_two_packages_with_one_name(greeters):
    """A name that two packages bring is refused until the package is named too."""
    with pytest.raises(DuplicatePlugin, match="choose one as 'other-kit:two' or 'greet-kit:two'"):
        kinds(callbacks=["two"])
    assert kinds(callbacks=["other-kit:two"]) == ["Greeter", "Greeter"]


def test_unknown_name(greeters):
    """A name that no package brings is refused with the nearest one and what to do."""
    with pytest.raises(UnknownPlugin, match=r"unknown callback 'greter'; did you mean 'greeter'\?") as error:
        kinds(callbacks=["greter"])
    assert "python -m core.callbacks" in str(error.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "OSError: no greeting"),
        ("missing", "AttributeError"),
        ("nothing", "makes a int, which is no Callback"),
    ],
)
def test_broken_ones(greeters, name, reason):
    """One that cannot be imported or made names its package and its reason."""
    with pytest.raises(PluginBroken, match=reason):
        load_callbacks(name)


def test_switches(greeters, monkeypatch):
    """The switches for plugins hold for callbacks too."""
    monkeypatch.setenv("INTERLOCK_BLOCK", "greet-kit")
    assert {item.distribution for item in installed_callbacks()} == {"other-kit"}
    monkeypatch.setenv("INTERLOCK_PLUGINS", "builtin")
    assert installed_callbacks() == []


def test_command_lists_without_torch(greeters):
    """The command prints them and imports neither torch nor the packages."""
    code = "import runpy, sys; runpy.run_module('core.callbacks', run_name='__main__'); print('torch' in sys.modules)"
    done = greeters.run("-c", code, env={"INTERLOCK_CALLBACKS": "other"})
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["NAME", "FROM", "ON"]
    assert ["greeter", "greet-kit", "2.0", "no"] in lines
    assert ["other", "other-kit", "2.0", "yes"] in lines
    assert lines[-1] == ["False"]
    assert not list(greeters.folder.glob("*-imported"))

"""Whether a plugin can run here: packages by their metadata, hardware by the accelerator's probe."""

import sys

import pytest
from support.declared import accelerator, strategy

from core.availability import missing_packages, probe, reasons_against
from core.declarations import Availability, Package


def needs(package):
    return missing_packages(strategy("ring", packages=(package,)))


def test_package_that_is_there(site):
    """An installed package of a fitting version is no reason against a plugin."""
    site.metadata("acme", "1.5")
    assert needs(Package("Acme", ">=1.2,<2")) == []


def test_package_that_is_missing():
    """A missing package is named with the command that installs it, through our extra where there is one."""
    assert needs(Package("no-such-thing")) == ["package 'no-such-thing' is not installed; pip install no-such-thing"]
    (reason,) = needs(Package("no-such-thing", extra="things"))
    assert reason.endswith('pip install "interlock[things]"')


@pytest.mark.parametrize("versions", [">=2", "<1.5", "==1.4.*", "~=1.6", ">=1,!=1.5"])
def test_package_of_another_version(site, versions):
    """A package of another version is told with both versions."""
    site.metadata("acme", "1.5")
    (reason,) = needs(Package("acme", versions))
    assert reason == f"package 'acme' 1.5 is installed, {versions} is needed; pip install acme"


def test_preliminary_version_counts_as_it_is_numbered(site):
    """A pre-release or a local build is held to its number."""
    site.metadata("acme", "2.0rc1+cu126")
    assert needs(Package("acme", ">=1.9")) == []
    assert needs(Package("acme", ">=2.0"))


def test_version_that_is_no_version(site):
    """A version that cannot be read does not satisfy a requirement, and does not end the program."""
    site.metadata("acme", "not-a-version")
    assert "not-a-version is installed" in needs(Package("acme", ">=1"))[0]


def test_wrong_package_of_the_right_name(site):
    """A package that lacks the module we need is told apart from the real one, without being imported."""
    site.metadata("apex", "0.9")
    (site.folder / "apex").mkdir()
    (site.folder / "apex" / "__init__.py").write_text("raise SystemExit('imported')")
    (reason,) = needs(Package("apex", module="apex.amp"))
    assert reason.startswith("package 'apex' 0.9 is installed but has no apex.amp: a different package of that name")
    assert "apex" not in sys.modules


@pytest.mark.parametrize("file", ["amp/__init__.py", "amp.py"])
def test_right_package_of_the_right_name(site, file):
    """The module may be a package or a file."""
    site.metadata("apex", "0.1")
    path = site.folder / "apex" / file
    path.parent.mkdir(parents=True)
    path.write_text("raise SystemExit('imported')")
    (site.folder / "apex" / "__init__.py").write_text("raise SystemExit('imported')")
    assert needs(Package("apex", module="apex.amp")) == []


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        ("unbounded", Availability()),
        ("two", Availability(2)),
        ("none", Availability(0, "no driver found")),
        ("only_a_reason", Availability(0, "no driver found")),
        ("raises", Availability(0, "its probe failed: OSError: driver too old")),
        ("exits", Availability(0, "its probe failed: SystemExit: 3")),
    ],
)
def test_answers_of_a_probe(function, answer):
    """A probe's answer is taken as it is, and whatever it raises becomes the reason."""
    assert probe(accelerator("npu", function)) == answer


@pytest.mark.parametrize("function", ["wrong_type", "negative", "no_such_function"])
def test_probe_that_is_broken(function):
    """A probe that cannot be found or returns something else is called broken, and there is no device."""
    answer = probe(accelerator("npu", function))
    assert answer.count == 0
    assert answer.reason.startswith("its probe is broken: ")


def test_probe_is_asked_once(monkeypatch):
    """A probe runs once per process, however often the accelerator is looked at."""
    calls = []
    monkeypatch.setattr("support.probes.two", lambda: calls.append(1) or Availability(2))
    for _ in range(3):
        probe(accelerator("npu", "two"))
    assert len(calls) == 1


def test_reasons_against_an_accelerator():
    """A missing package comes first, since the probe may need it; else the probe's reason counts."""
    assert reasons_against(accelerator("npu", "two")) == []
    assert reasons_against(accelerator("npu", "none")) == ["no driver found"]
    (reason,) = reasons_against(accelerator("npu", "none", packages=(Package("no-such-thing"),)))
    assert "no-such-thing" in reason

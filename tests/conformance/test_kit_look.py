"""What is seen of a plugin from a process of its own."""

import pytest
from support.fake_dists import write_plugin
from wrong_plugins import NO_CLIPPING, install

from core.conformance import look

HEAVY_PROBE = """
from core.declarations import Availability

def probe():
    import torch
    return Availability(torch.cuda.device_count())
"""
OPEN_PROBE = """
from core.declarations import Availability

kept = []

def probe():
    kept.append(open("/dev/zero"))
    return Availability(1)
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a folder on the path of every process that is started."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    look.ask.cache_clear()
    return tmp_path


def test_a_light_declaration(site):
    """A declaration that imports nothing is seen without torch."""
    write_plugin(site, "acme", "strategy", "ring")
    assert look.ask("declaration", "acme:DECLARATION") == {"torch": False}


def test_a_broken_declaration(site):
    """A declaration that cannot be read is seen with the phase and the reason."""
    write_plugin(site, "acme", "strategy", "ring", before="import no_such_module")
    assert "import: ModuleNotFoundError" in look.ask("declaration", "acme:DECLARATION")["error"]


def test_a_declaration_that_ends_the_process(site):
    """A declaration that takes the process with it is seen with the exit status."""
    write_plugin(site, "acme", "strategy", "ring", before="import os; os._exit(3)")
    assert "exit status 3" in look.ask("declaration", "acme:DECLARATION")["error"]


def test_probes(site):
    """A probe is seen with its answer, whether it imported torch, and what it left open."""
    write_plugin(site, "acme", "accelerator", "chip", count=4)
    seen = look.ask("declaration", "acme:DECLARATION", "acme:probe")["probe"]
    assert seen == {"count": 4, "reason": "", "torch": False, "opened": []}
    (site / "heavy.py").write_text(HEAVY_PROBE)
    assert look.ask("declaration", "acme:DECLARATION", "heavy:probe")["probe"]["torch"]
    (site / "open_one.py").write_text(OPEN_PROBE)
    assert look.ask("declaration", "acme:DECLARATION", "open_one:probe")["probe"]["opened"] == ["/dev/zero"]


def test_implementations(site):
    """Implementations that bind are seen with what is wrong with their options, by kind."""
    options = "(Option('depth', 2, 'how deep'), Option('width', 1, 'how wide'))"
    source = NO_CLIPPING + "    def __init__(self, depth=5, width=1):\n        self.depth = depth\n"
    install(site, "soft", source, provides=(), options=Verbatim(options))
    seen = look.ask("implementation", "cpu", "32-true", "soft")
    assert seen["options"]["accelerator"] == []
    assert seen["options"]["strategy"] == [
        "depth is 5 by default, not 2",
        "an instance has no attribute 'width', so the plan cannot show it",
    ]


def test_a_misspelt_hook(site):
    """An implementation with a misspelt hook is seen with its kind, the phase and the reason."""
    source = NO_CLIPPING + "    @hookimpl\n    def redcue(self, tensor, op):\n        return tensor\n"
    install(site, "soft", source, provides=())
    seen = look.ask("implementation", "cpu", "32-true", "soft")
    assert (seen["kind"], seen["phase"]) == ("strategy", "registration of its hooks")
    assert "redcue" in seen["reason"]


class Verbatim(str):
    """Source that stands in a module as it is."""

    def __repr__(self):
        return str(self)

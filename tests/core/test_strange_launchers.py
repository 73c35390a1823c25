"""Launchers that other packages bring are all asked; one that is broken keeps no program from running."""

import json
import sys

import pytest

from core.environments import detect_environment
from core.errors import InvalidArgument
from core.registry import get_registry

SOURCE = """
from core.declarations import API, EnvironmentDeclaration
from core.errors import InvalidArgument
from core.session import LaunchEnvironment, Ranks
DECLARATION = EnvironmentDeclaration(
    name="grid", summary="a grid", implementation="acme:detect", api=API, preference=1000
)
def detect(env):
    {body}
"""
BROKEN = {
    "raise KeyError('GRID_RANK')": "while detection: KeyError: 'GRID_RANK'",
    "raise SystemExit(0)": "while detection: SystemExit: 0",
    "return 7": "while detection: it returned 7, and a LaunchEnvironment or None belongs there",
    "pass\n\ndel detect": "while import of the implementation: AttributeError: module 'acme' has no attribute 'detect'",
}
LAUNCHED = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}
LAUNCHED |= {"MASTER_ADDR": "host", "MASTER_PORT": "29500"}


@pytest.fixture
def install(site):
    """Return a function that installs a launcher that is asked first, with this body."""

    def install(body):
        site.metadata("acme", "2.0", {"interlock.environments": {"grid": "acme:DECLARATION"}})
        (site.folder / "acme.py").write_text(SOURCE.format(body=body))
        sys.modules.pop("acme", None)
        get_registry.cache_clear()

    return install


@pytest.mark.parametrize("body", BROKEN, ids=["raises", "exits", "other type", "missing"])
def test_a_broken_launcher_is_told_and_passed_over(install, body):
    """What is wrong stands in a warning with its package, and the launcher that did start the program is found."""
    install(body)
    with pytest.warns(UserWarning, match="environment 'grid' from acme 2.0 is broken") as said:
        assert detect_environment(LAUNCHED).name == "torchrun"
    assert BROKEN[body] in str(said[0].message)
    assert "INTERLOCK_BLOCK=acme silences this" in str(said[0].message)


def test_doctor_finds_it(install, cli):
    """Doctor says that the launcher is broken, and what it takes the process for without it."""
    install("raise KeyError('GRID_RANK')")
    answer = cli("doctor", "--json")
    findings = [each for each in json.loads(answer.out)["findings"] if each["subject"] == "launcher"]
    assert [each["state"] for each in findings] == ["broken", "ready"]
    assert "KeyError: 'GRID_RANK'" in findings[0]["text"]
    assert answer.code == 1


def test_what_it_refuses_on_purpose_is_an_error(install):
    """A launcher that finds its variables in contradiction is not broken, and its words end the program."""
    install("raise InvalidArgument('GRID_RANK=9 of 4')")
    with pytest.raises(InvalidArgument, match="GRID_RANK=9 of 4"):
        detect_environment({})


def test_a_sound_launcher_gives_the_ranks(install):
    """A launcher that no one here wrote starts the program's ranks."""
    install("return LaunchEnvironment('grid', 'GRID is set', Ranks(1, 1, 0, 2, 1)) if 'GRID' in env else None")
    environment = detect_environment({"GRID": "1"})
    assert (environment.name, environment.ranks.global_rank) == ("grid", 1)
    assert detect_environment({}).name == "none"

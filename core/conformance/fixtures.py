"""The fixtures of the checks."""

from __future__ import annotations

import pytest

from core.conformance.judge import Judge
from core.conformance.programs import Lab
from core.conformance.report import Report
from core.conformance.setup import Setup
from core.declarations import Declaration, Kind
from core.discovery import Found

REPORT = pytest.StashKey[Report]()


@pytest.fixture(scope="session")
def setup(request: pytest.FixtureRequest) -> Setup:
    """Return what is checked."""
    return request.config.stash[REPORT].setup


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest, setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Return the runs; each is started when a check first asks for it."""
    folder = request.config.stash[REPORT].folder = tmp_path_factory.mktemp("interlock")
    return Lab(setup.programs(), folder)


@pytest.fixture(scope="session")
def judge(setup: Setup, lab: Lab) -> Judge:
    """Return who compares them."""
    return Judge(setup, lab)


@pytest.fixture
def declaration(setup: Setup, kind: Kind) -> Declaration:
    """Return the declaration of the plugin of ``kind``."""
    return setup.declaration(kind)


@pytest.fixture
def found(setup: Setup, kind: Kind) -> Found:
    """Return the entry point of the plugin of ``kind``."""
    chosen = setup.chosen(kind)
    return setup.registry.find(kind, f"{chosen.distribution}:{chosen.name}")

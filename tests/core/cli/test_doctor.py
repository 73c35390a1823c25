"""``doctor``: what is wrong on this machine, and never a hang."""

import json
import sys
import time

import pytest

from core.cli.probe_child import run_probes
from core.declarations import Package


@pytest.fixture
def findings(cli):
    """Return a function that runs doctor and returns its exit code and its findings by section and subject."""

    def run(*arguments):
        answer = cli("doctor", "--json", *arguments)
        report = json.loads(answer.out)
        assert report["ok"] == (answer.code == 0)
        return answer.code, {(f["section"], f["subject"]): f for f in report["findings"]}

    return run


def test_machine_that_is_well(findings):
    """Where nothing is broken and an accelerator is ready, doctor says what it saw and ends with 0."""
    code, found = findings()
    assert code == 0
    assert found["this machine", "python"]["text"].startswith(sys.version.split()[0])
    assert found["this machine", "torch"]["state"] == "ready"
    assert found["accelerators", "cpu"]["state"] == "ready"
    assert found["this machine", "launcher"]["text"] == "none: no launcher's variables are set"


def test_text_is_for_people(cli):
    """Without --json the findings are lines under their sections, with the verdict last."""
    lines = cli("doctor").out.splitlines()
    assert lines[0] == "this machine"
    assert "accelerators" in lines
    assert lines[-1] == "all is well: nothing is broken and an accelerator is ready"


def test_broken_plugin_shows_its_traceback(findings, cli, site):
    """A broken plugin is shown with the traceback of its own code, and doctor ends with 1."""
    site.plugin("acme", "strategy", "ring", source="def load():\n    raise ImportError('no libring')\nload()\n")
    code, found = findings()
    assert code == 1
    ring = found["plugins", "strategy ring from acme 1.0"]
    assert ring["state"] == "broken"
    assert ring["text"] == "while: import, reason: ImportError: no libring"
    assert ring["detail"].splitlines()[0] == "Traceback (most recent call last):"
    assert "acme.py" in ring["detail"].splitlines()[1]
    assert cli("doctor").out.splitlines()[-1] == "broken: strategy ring from acme 1.0"


def test_conflict_is_reported_and_nothing_broken(findings, site):
    """A name that two plugins claim is reported; it breaks nothing until it is used."""
    site.plugin("acme", "strategy", "ring")
    site.plugin("bolt", "strategy", "ring")
    code, found = findings()
    assert code == 0
    assert found["plugins", "strategy ring from acme 1.0"]["text"] == "bolt 1.0 claims this name too"


def test_packages_are_held_against_declarations(findings, site):
    """A package that is missing, too old, or another one of the same name is said to be so."""
    site.metadata("oldie", "1.0")
    site.metadata("apex", "0.9")
    (site.folder / "apex").mkdir()
    (site.folder / "apex" / "__init__.py").write_text("")
    packages = {
        "gone": Package("no-such-thing"),
        "old": Package("oldie", ">=2"),
        "wrong": Package("apex", "", "", "apex.amp"),
    }
    for name, package in packages.items():
        site.plugin(f"needs-{name}", "strategy", name, packages=(package,))
    code, found = findings()
    assert code == 0
    assert "is not installed" in found["packages", "strategy gone"]["text"]
    assert "1.0 is installed, >=2 is needed" in found["packages", "strategy old"]["text"]
    assert "a different package of that name" in found["packages", "strategy wrong"]["text"]


def test_probe_that_hangs(findings, site):
    """A driver that hangs costs the timeout and no more, and is reported as such; the others are probed."""
    site.plugin("acme", "accelerator", "npu", source=HANGING)
    start = time.monotonic()
    code, found = findings("--timeout", "2")
    assert time.monotonic() - start < 20
    assert code == 0
    assert found["accelerators", "npu"]["text"] == "its probe gave no answer within 2 seconds"
    assert found["accelerators", "cpu"]["state"] == "ready"


HANGING = """
import time
from core.declarations import API, AcceleratorDeclaration
def probe():
    time.sleep(600)
DECLARATION = AcceleratorDeclaration(
    name="npu", summary="NPUs", implementation="acme:NPU", api=API, probe="acme:probe"
)
"""


@pytest.mark.parametrize(
    ("probe", "count", "reason"),
    [
        ("two", 2, ""),
        ("unbounded", None, ""),
        ("none", 0, "no driver found"),
        ("noisy", 2, ""),
        ("raises", 0, "its probe failed: OSError: driver too old"),
        ("exits", 0, "its probe failed: SystemExit: 3"),
        ("crashes", 0, "its probe ended by SIGSEGV: it printed no answer"),
        ("no_such_function", 0, "its probe is broken: AttributeError: module 'support.probes' has no attribute"),
    ],
)
def test_probes_in_processes_of_their_own(probe, count, reason):
    """A probe may answer, print, raise, exit or crash: the answer says which, and this process goes on."""
    answer = run_probes({"npu": f"support.probes:{probe}"}, timeout=30)["npu"]
    assert answer.count == count
    assert answer.reason.startswith(reason)


def test_no_accelerator_is_ready(findings, monkeypatch):
    """Where no accelerator is ready doctor ends with 1, though nothing is broken."""
    monkeypatch.setenv("INTERLOCK_BLOCK", "cpu,cuda,xla")
    code, found = findings()
    assert not [f for f in found.values() if f["section"] == "accelerators" and f["state"] == "ready"]
    assert code == 1


LAUNCHERS = {
    "torchrun": {
        **{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"},
        **{"MASTER_ADDR": "host", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x"},
    },
    "slurm": {
        **{"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_STEP_ID": "0"},
        **{"SLURM_NTASKS": "2", "SLURM_NNODES": "2", "SLURM_JOB_NAME": "train", "SLURM_STEP_NODELIST": "n[1-2]"},
        "MASTER_ADDR": "n1",
    },
    "none": {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "bash"},
}
REASONS = {"torchrun": "WORLD_SIZE=4", "slurm": "started by SLURM job 7", "none": "in a shell of SLURM job 7"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launcher_is_named_with_its_reason(findings, monkeypatch, launcher):
    """Doctor says which launcher started it, and by which variables it knows."""
    for name, value in LAUNCHERS[launcher].items():
        monkeypatch.setenv(name, value)
    finding = findings()[1]["this machine", "launcher"]
    assert finding["state"] == "ready"
    assert finding["text"].startswith(f"{launcher}: ")
    assert REASONS[launcher] in finding["text"]


def test_launcher_variable_that_is_wrong(findings, monkeypatch):
    """A launcher's variable with nonsense in it is a broken launcher."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "x")
    code, found = findings()
    assert code == 1
    assert "is not a whole number" in found["this machine", "launcher"]["text"]

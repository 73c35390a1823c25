"""What starting costs: one look at the installed packages, and nobody's implementation."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from support.fake_dists import write_metadata, write_plugin

PROGRAM = """
import json
import sys

import importlib_metadata

scans, looked = [], importlib_metadata.distributions

def distributions(**given):
    if "name" not in given:  # with a name it looks up one distribution, such as a package that a plugin requires
        scans.append(given)
    return looked(**given)

importlib_metadata.distributions = distributions

import core
after = {"import": sorted(name for name in sys.modules if name.startswith(("slow", "torch")))}
from core import Trainer
from core.cli import main

for strategy in ("single_device", "quick", "single_device"):
    Trainer(accelerator="cpu", strategy=strategy, logger=False)
for arguments in (["list", "--json"], ["matrix", "--accelerator", "cpu"], ["explain", "--strategy", "quick"]):
    main(arguments)
after["all"] = sorted(name for name in sys.modules if name.startswith("slow") and name.endswith("implementation"))
sys.stderr.write(json.dumps([len(scans), after]))
"""


def test_one_scan_and_no_implementation(tmp_path):
    """300 distributions, 20 of them with slow plugins: one scan for a whole program, and no implementation imported."""
    for number in range(279):
        write_metadata(tmp_path, f"plain-{number}", "1.0", {"console_scripts": {"x": "x:main"}})
    for number in range(20):
        module = f"slow{number}_implementation"
        (tmp_path / f"{module}.py").write_text("raise SystemExit('imported')")
        write_plugin(tmp_path, f"slow{number}", "strategy", f"slow{number}", implementation=f"{module}:Slow")
    write_plugin(tmp_path, "quick", "strategy", "quick", implementation="quick_implementation:Quick")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"slow') >= 20
    assert json.loads(done.stderr.splitlines()[-1]) == [1, {"import": [], "all": []}]

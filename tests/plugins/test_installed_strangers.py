"""Packages that Interlock knows nothing of: built, installed with pip into a fresh environment, and used by name."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from support.environments import Environment, build_wheels

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "examples" / "plugins"
STRANGERS = {
    "interlock-localsgd": ("strategy", "local_sgd"),
    "interlock-quantddp": ("strategy", "ddp_quantized"),
    "interlock-simdevice": ("accelerator", "sim"),
    "interlock-stochastic": ("precision", "bf16-stochastic"),
}
VERSION = "1.0.0"
BESIDE = {"interlock-simdevice": ("--strategy", "ddp")}
"""Who is checked with them: a strategy of two processes that knows nothing of the device."""
TOGETHER = """
import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

from core import Module, Trainer
from interlock_localsgd import LocalSGD
from interlock_stochastic import StochasticRounding

class Regression(Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        assert batch.device.type == "sim" and batch.dtype == torch.bfloat16
        return nn.functional.mse_loss(self.net(batch), batch.sum(1, keepdim=True))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

if __name__ == "__main__":
    losses = {}
    data = torch.randn(64, 4, generator=torch.Generator().manual_seed(2))
    for strategy in (LocalSGD(sync_every=2), "ddp_quantized"):
        trainer = Trainer(accelerator="sim", precision=StochasticRounding(seed=3), strategy=strategy, devices=2,
                          max_epochs=8, logger=False, enable_checkpointing=False, enable_progress_bar=False)
        module = Regression()
        trainer.fit(module, DataLoader(data, batch_size=4))
        net = module.net.float().cpu()
        losses[trainer.plan.strategy.name] = nn.functional.mse_loss(net(data), data.sum(1, keepdim=True)).item()
        if strategy != "ddp_quantized":
            plan, shown = trainer.plan.to_dict(), str(trainer.plan)
    if trainer.is_global_zero:
        print(json.dumps({"losses": losses, "plan": plan, "shown": shown}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("strangers")


@pytest.fixture(scope="module")
def environment(folder) -> Environment:
    """A fresh environment with the four packages."""
    fresh = Environment(folder / "environment")
    fresh.install(*build_wheels([PLUGINS / name for name in STRANGERS], folder / "wheels"))
    return fresh


def test_every_package_is_tried():
    """The folder of examples holds these packages and no other."""
    assert {path.parent.name for path in PLUGINS.glob("*/pyproject.toml")} == set(STRANGERS)


@pytest.mark.parametrize("room", ["core", "builtin_plugins"])
def test_no_line_of_ours_names_them(room):
    """Neither the core nor the built-in plugins know of any of them."""
    words = [word for name, (_, plugin) in STRANGERS.items() for word in (name, name.replace("-", "_"), plugin)]
    for path in (ROOT / room).rglob("*.py"):
        text = path.read_text()
        assert not [word for word in words if word in text and word != "sim"], path


def test_list_knows_them(environment, folder):
    """Each is listed as ready, with its package and version."""
    rows = json.loads(environment.registry("list", "--json", cwd=folder).stdout)
    listed = {(row["kind"], row["name"]): row for row in rows}
    for name, key in STRANGERS.items():
        row = listed[key]
        assert (row["distribution"], row["version"], row["status"]) == (name, VERSION, "ready")


def test_matrix_knows_them(environment, folder):
    """The table of combinations has them, valid with each other and refused where they say so."""
    done = environment.registry("matrix", "--accelerator", "sim", "--format", "json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for _, name in STRANGERS.values())


@pytest.mark.parametrize("name", STRANGERS)
def test_explain_knows_them(environment, folder, name):
    """The plan for each names it with its package and version."""
    kind, plugin = STRANGERS[name]
    done = environment.registry("explain", f"--{kind}", plugin, cwd=folder)
    assert done.returncode == 0, done.stdout
    assert f"{plugin}  [{name} {VERSION}]" in done.stdout


def test_explain_refuses_by_their_rules(environment, folder):
    """A rule in a stranger's declaration refuses a combination with its own words, and others are proposed."""
    done = environment.registry(
        "explain", "--precision", "bf16-stochastic", "--strategy", "ddp_sharded", "--devices", "2", cwd=folder
    )
    assert done.returncode == 1
    assert "it gives the optimizers float32 stand-ins, and a sharded one keeps its own" in done.stdout
    assert "nearest combinations that work here" in done.stdout


def test_strangers_train_together(environment, folder):
    """An accelerator, a precision and two strategies of four packages train together, found by their tokens alone."""
    script = folder / "together.py"
    script.write_text(TOGETHER)
    done = environment.run(script, cwd=folder)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert all(loss < 0.1 for loss in answer["losses"].values()), answer["losses"]
    plan = answer["plan"]
    for name in ("interlock-localsgd", "interlock-simdevice", "interlock-stochastic"):
        kind, plugin = STRANGERS[name]
        assert (plan[kind]["name"], plan[kind]["distribution"], plan[kind]["version"]) == (plugin, name, VERSION)
    assert plan["strategy"]["options"]["sync_every"] == 2
    assert plan["precision"]["options"] == {"seed": 3}
    assert "sync_every=2" in answer["shown"]


def test_their_pages_run(environment, folder):
    """What each README shows runs as it stands, and so does the line that puts them together."""
    pages = [PLUGINS / "README.md", *(PLUGINS / name / "README.md" for name in STRANGERS)]
    snippets = [
        snippet for page in pages for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    assert len(snippets) == len(pages)
    script = folder / "pages.py"
    script.write_text("\n".join(["from core import Trainer", *snippets]))
    done = environment.run(script, cwd=folder)
    assert done.returncode == 0, done.stderr
    for name, (_, plugin) in STRANGERS.items():
        assert f"{plugin}  [{name} {VERSION}]" in done.stdout


@pytest.mark.parametrize("name", STRANGERS)
def test_their_own_tests_pass(environment, folder, name):
    """The tests that each package brings pass where it is installed."""
    tests = shutil.copytree(PLUGINS / name, folder / name, dirs_exist_ok=True)
    done = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tests, timeout=115)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(400)  # the kit trains some twenty times
@pytest.mark.parametrize("name", STRANGERS)
def test_they_pass_the_kit(environment, folder, name):
    """Each keeps the promises of its declaration, where it is installed and nothing of ours was changed for it."""
    kind, plugin = STRANGERS[name]
    kit = ("-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "core.conformance", f"--{kind}", plugin)
    done = environment.run(*kit, *BESIDE.get(name, ()), cwd=folder, timeout=390)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{kind} {plugin!r} [{name} {VERSION}]" in done.stdout
    assert "not judged" not in done.stdout


def test_what_is_uninstalled_is_unknown(folder):
    """A package that was taken away leaves nothing behind: its name is unknown, with what is there and how to look."""
    fresh = Environment(folder / "another")
    fresh.install(*(folder / "wheels").glob("interlock_localsgd*.whl"))
    assert fresh.registry("explain", "--strategy", "local_sgd", cwd=folder).returncode == 0
    fresh.uninstall("interlock-localsgd")
    done = fresh.registry("explain", "--strategy", "local_sgd", cwd=folder)
    assert done.returncode == 1
    assert "unknown strategy 'local_sgd'" in done.stdout
    assert "known here: " in done.stdout
    assert "hint: python -m core.registry list --kind strategy" in done.stdout
